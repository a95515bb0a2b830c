// Package server holds the servers that the messenger is compared with: the
// floor, which echoes bytes and knows nothing else, and the one that a Go programmer would
// write with package net.
package server
