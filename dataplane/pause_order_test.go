package dataplane

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// The task of the first call reaches the core that the handler has left, and comes to
// the new one behind that of the second call.
func TestTheLastOfPauseAndResumeHoldsWhileTheHandlerMoves(t *testing.T) {
	for _, pause := range []bool{true, false} {
		a, b := twoBeds(t, nil)
		c := a.conn(OpenOptions{})
		first, last := c.h.Resume, c.h.Pause
		if !pause {
			first, last = last, first
		}
		arrived := false
		between := loop.Task{Run: func(*loop.Core) {
			if c.h.Core() != b.c {
				t.Error("the handler is still on the old core")
			}
			last()
		}}
		c.h.Migrate(b.c, func() { arrived = true })
		a.c.Post(&between)
		first()
		moveSock(t, a, b, c, func() bool { return arrived })
		b.settle()
		c.sock.Arrive(c.peer.message(1, 0, &Message{TID: 1}))
		b.settle()
		if got := len(c.own.list()); (got == 0) != pause || c.own.fault() != nil {
			t.Errorf("last called pause: %v, and %d messages came, %v", pause, got, c.own.fault())
		}
		b.close()
		a.close()
	}
}
