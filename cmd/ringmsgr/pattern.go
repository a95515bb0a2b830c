package main

import (
	"math/rand/v2"
)

// pattern is random bytes, which are read-only. The payload of a message is a part of them
// that begins where the numbers of its connection and of itself say, so that bytes of another
// message, bytes from another place and changed bytes all show.
type pattern []byte

// starts is at how many places a payload can begin: a prime, so that messages which follow
// each other in any rhythm begin elsewhere.
const starts = 4093

// newPattern has room for payloads up to a size.
func newPattern(size int) pattern {
	p := make(pattern, size+starts)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(p) // never fails
	return p
}

// payload is that of message n on a connection.
func (p pattern) payload(conn, n uint64, size int) []byte {
	at := int((conn%starts*61 + n) % starts)
	return p[at : at+size : at+size]
}
