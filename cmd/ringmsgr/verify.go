package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control"
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

// verdict is what serve --verify found in the messages of "send".
type verdict struct {
	Verified   uint64 `json:"verified"`
	Duplicates uint64 `json:"duplicates"`
	Losses     uint64 `json:"losses"`
	Corrupt    uint64 `json:"corrupt"`
}

// err is nil if every message came exactly once, in order and whole.
func (v *verdict) err() error {
	if v.Duplicates+v.Losses+v.Corrupt == 0 {
		return nil
	}
	return fmt.Errorf("received %v", v)
}

func (v *verdict) String() string {
	return fmt.Sprintf("%d messages in order, %d duplicates, %d losses, %d corrupt", v.Verified, v.Duplicates, v.Losses, v.Corrupt)
}

// verifier checks what "send" sends: on each session the numbers 0, 1, 2 and so
// on, with every byte of their payloads. A message that comes late counts as
// a loss when it is missed, and as a duplicate when it comes.
type verifier struct {
	verified, duplicates, losses, corrupt atomic.Uint64
	pattern                               atomic.Pointer[pattern] // for the largest payload so far, at least
}

// series is the state of one session. It belongs to the core of the connection.
type series struct {
	next uint64 // number of the next message
}

// begin makes c a new session.
func (v *verifier) begin(c *control.Conn) *series {
	s := &series{}
	c.SetUserData(s)
	return s
}

// check looks at a message of c. What is not from "send" passes.
func (v *verifier) check(c *control.Conn, m *control.Message) {
	if len(m.Front) != headSize {
		return
	}
	s, ok := c.UserData().(*series)
	if !ok {
		s = v.begin(c)
	}
	lane, n := binary.LittleEndian.Uint64(m.Front), binary.LittleEndian.Uint64(m.Front[8:])
	switch {
	case m.TID != n || len(m.Middle) != 0 || !v.intact(lane, n, m.Data):
		v.corrupt.Add(1)
		return // its number means nothing
	case n < s.next:
		v.duplicates.Add(1)
		return
	case n > s.next:
		v.losses.Add(n - s.next)
	default:
		v.verified.Add(1)
	}
	s.next = n + 1
}

// intact checks every byte of a payload.
func (v *verifier) intact(lane, n uint64, b []byte) bool {
	p := v.pattern.Load()
	for p == nil || len(*p)-starts < len(b) {
		larger := newPattern(max(len(b), 1<<16))
		// Another core may do the same; the larger one stays.
		v.pattern.CompareAndSwap(p, &larger)
		p = v.pattern.Load()
	}
	return bytes.Equal(b, p.payload(lane, n, len(b)))
}

func (v *verifier) verdict() *verdict {
	return &verdict{v.verified.Load(), v.duplicates.Load(), v.losses.Load(), v.corrupt.Load()}
}
