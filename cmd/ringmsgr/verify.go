package main

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control"
)

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
	next   uint64 // number of the next message
	window int    // of the last payload
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
	case m.TID != n || len(m.Middle) != 0 || !v.intact(s, m.Data, key(int(lane), n)):
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

// intact checks every byte of a payload with key k. Which window it began as
// depends on how many messages the sender keeps under way: most often it is the
// one behind the last.
func (v *verifier) intact(s *series, b []byte, k uint64) bool {
	p := v.pattern.Load()
	for p == nil || p.size < len(b) {
		// Another core may do the same; the larger one stays.
		v.pattern.CompareAndSwap(p, newPattern(max(len(b), 1<<16)))
		p = v.pattern.Load()
	}
	for i := range windows {
		w := (s.window + 1 + i) % windows
		if matches(b, p.window(w)[:len(b)], k) {
			s.window = w
			return true
		}
	}
	return false
}

func (v *verifier) verdict() *verdict {
	return &verdict{v.verified.Load(), v.duplicates.Load(), v.losses.Load(), v.corrupt.Load()}
}
