package control

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
)

func TestADelayedMessageOfASessionThatIsLostIsNotDispatched(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(c *Conn)
		want int
	}{
		{"none", func(*Conn) {}, 1},
		{"the session is lost", func(c *Conn) { c.queue.discard(c) }, 0},
		{"the connection is over", func(c *Conn) { c.over.Store(true) }, 0},
	} {
		m, dispatched := &Messenger{s: new(sessions.Manager)}, 0
		m.chain.list = []*Dispatcher{{Fast: func(*Conn, *Message) bool { dispatched++; return true }}}
		c := &Conn{m: m}
		e := &heldMessage{session: c.queue.session.Load()}
		end.do(c)
		if e.offer(c, NewMessage(1, nil, nil)); dispatched != end.want {
			t.Errorf("%s: dispatched %d times, want %d", end.name, dispatched, end.want)
		}
	}
}
