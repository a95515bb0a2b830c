// Package blocks is what the clients and the servers of the storage benchmark agree on:
// what stands at each offset of the file, so that everybody can check what was read or
// written, and how a request names what it wants.
package blocks
