package main

import (
	"math/rand/v2"
)

// pattern is random bytes, which are read-only. A payload is a part of them, at an offset
// made of the numbers of its connection and message. So changed bytes, and bytes of another
// message or offset, are found.
type pattern []byte

// starts is the number of offsets: a prime, so that no period of messages has only one.
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
