package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// A payload is a window into random bytes, with a stamp at every stampEvery
// bytes that depends on the message and on the place. Neighbouring messages have
// windows 64 bytes apart. So bytes of another message, bytes from another
// place and changed bytes all show, and a check costs little more than reading
// the payload.
const (
	stampEvery = 512
	stampSize  = 8
	windows    = 61 // prime, so that no depth is a multiple of it
	windowStep = 64
)

// pattern is the random bytes for payloads of one size. It is read-only.
type pattern struct {
	size  int
	bytes []byte
}

func newPattern(size int) *pattern {
	p := &pattern{size: size, bytes: make([]byte, size+windows*windowStep)}
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(p.bytes) // never fails
	return p
}

// window is the unstamped payload of slot i.
func (p *pattern) window(i int) []byte {
	at := i % windows * windowStep
	return p.bytes[at : at+p.size : at+p.size]
}

// key is the stamp of message n of a connection at place 0.
func key(conn int, n uint64) uint64 {
	k := (n + 1) * 0x9e3779b97f4a7c15 // odd: no two messages share it
	return k ^ uint64(conn+1)<<48
}

// stamp marks b, a copy of a window, as payload of the message with key k. A
// payload shorter than a stamp gets the first bytes of it.
func stamp(b []byte, k uint64) {
	for place := uint64(0); len(b) > 0; place++ {
		if len(b) < stampSize {
			var s [stampSize]byte
			binary.LittleEndian.PutUint64(s[:], k+place)
			copy(b, s[:])
			return
		}
		binary.LittleEndian.PutUint64(b, k+place)
		b = b[min(stampEvery, len(b)):]
	}
}

// matches compares b with window w stamped with k.
func matches(b, w []byte, k uint64) bool {
	if len(b) != len(w) {
		return false
	}
	for place := uint64(0); len(b) > 0; place++ {
		if len(b) < stampSize {
			var s [stampSize]byte
			binary.LittleEndian.PutUint64(s[:], k+place)
			return bytes.Equal(b, s[:len(b)])
		}
		n := min(stampEvery, len(b))
		if binary.LittleEndian.Uint64(b) != k+place || !bytes.Equal(b[stampSize:n], w[stampSize:n]) {
			return false
		}
		b, w = b[n:], w[n:]
	}
	return true
}
