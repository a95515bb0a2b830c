package dataplane

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func TestFrozenHandlerKeepsItsQueueAndTakesNothing(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *loop.Plane) {
		h := NewHandler(p.Core(0), HandlerConfig{Owner: nil, QueueMessages: 3})
		freeze := func() HandlerState {
			answer := make(chan HandlerState, 1)
			h.Freeze(func(st HandlerState) { answer <- st })
			return <-answer
		}
		a, b, c := NewMessage(1, nil, nil), NewMessage(2, nil, nil), NewMessage(3, nil, nil)
		b.Priority = PriorityHigh
		for _, m := range []*Message{a, b} {
			must(t, h.Send(m))
		}
		st := freeze()
		if len(st.Sent)+len(st.Replay) != 0 || len(st.Queued) != 2 || st.Queued[0] != b || st.Queued[1] != a {
			t.Errorf("%+v", st)
		}
		room := h.Room()
		for range 3 { // what is refused takes no room
			if err := h.Send(c); !errors.Is(err, ErrFrozen) {
				t.Errorf("Send: %v", err)
			}
		}
		if n, _ := h.QueuedOut(); n != 2 {
			t.Errorf("%d messages are charged", n)
		}
		h.Thaw()
		<-room
		if err := h.Send(c); err != nil {
			t.Errorf("Send after Thaw: %v", err)
		}
		if st := freeze(); len(st.Queued) != 3 || st.Queued[2] != c {
			t.Errorf("%+v", st)
		}
		closed := make(chan struct{})
		h.Close(func() { close(closed) })
		<-closed
		if err := h.Send(NewMessage(1, nil, nil)); !errors.Is(err, ErrDropped) {
			t.Errorf("Send after Close: %v", err)
		}
		if st := freeze(); len(st.Queued) != 0 {
			t.Errorf("a closed handler has %+v", st)
		}
	})
}

func TestRestoredHandlerHasTheStateOfTheFrozenOne(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *loop.Plane) {
		m := make([]*Message, 6)
		for i := range m {
			m[i] = NewMessage(uint16(i), make([]byte, 10), nil)
		}
		h := NewHandler(p.Core(0), HandlerConfig{QueueMessages: 1})
		st := HandlerState{InSeq: 4, OutSeq: 9, Sent: m[:2], Replay: m[2:4], Queued: m[4:]}
		must(t, h.Restore(st))
		if m[0].Seq() != 8 || m[1].Seq() != 9 {
			t.Errorf("sequences %d and %d", m[0].Seq(), m[1].Seq())
		}
		if n, bytes := h.QueuedOut(); n != 6 || bytes != 60 {
			t.Errorf("%d messages with %d bytes are charged", n, bytes)
		}
		answer := make(chan HandlerState, 1)
		h.RequeueSentUpTo(8)
		h.Freeze(func(st HandlerState) { answer <- st })
		got := <-answer
		if got.InSeq != 4 || got.OutSeq != 8 || len(got.Sent) != 0 || len(got.Replay) != 3 || got.Replay[0] != m[1] || len(got.Queued) != 2 {
			t.Errorf("%+v", got)
		}
		h.Close(nil)
		if err := NewHandler(p.Core(0), HandlerConfig{}).Restore(HandlerState{OutSeq: 1, Sent: []*Message{NewMessage(1, nil, nil), NewMessage(1, nil, nil)}}); err == nil {
			t.Error("more messages than sequences are restored")
		}
	})
}
