// Package blocks is shared by the clients and the servers of the storage benchmark: the content
// of the file at each offset, so that all of them can check it, and the form of requests.
package blocks
