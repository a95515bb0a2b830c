package sessions

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// A connection that ends with a reset event may have received messages, perhaps
// acknowledged ones, that wait for Queued. They are dispatched first: until then the
// connection lingers, closed to everybody else. So a received message is dispatched,
// unless the user or a shutdown has ended its connection, or a reset event has said that
// it is lost.
//
// Every connection ends here, and then loses its calls and postings.

// lingering are the closed connections of a messenger with messages that still wait for Queued,
// and the reset event with which each of them ends. The messenger's lock guards them.
type lingering map[*Conn]Reset

// tellResetLocked has the handler of a closed connection say that it is over, at once or
// when it has lingered.
func (l lingering) tellResetLocked(c *Conn, ev Reset) {
	if waits := c.user.Finish(); !waits || c.h.Core().State() != loop.CoreRunning {
		sayResetLocked(c, ev)
		return
	}
	l[c] = ev
	c.out.PutLocked(func() { c.h.Delay(false, nil) }) // its socket is of no use any more
}

// closeIOLocked ends the handler of a closed connection, unless it lingers.
func (l lingering) closeIOLocked(c *Conn) {
	if _, lingers := l[c]; !lingers {
		endIOLocked(c)
	}
}

// endLocked ends a connection if it still lingers. tell: with its reset event.
func (l lingering) endLocked(c *Conn, tell bool) {
	ev, lingers := l[c]
	if !lingers {
		return
	}
	delete(l, c)
	if tell {
		sayResetLocked(c, ev)
	}
	c.user.Cease()
	endIOLocked(c)
}

// endAllLocked ends the lingering connections on a core, nil: on all, and drops the messages
// that wait for Queued.
func (l lingering) endAllLocked(on *loop.Core, tell bool) {
	for _, c := range slices.SortedFunc(maps.Keys(l), func(a, b *Conn) int { return cmp.Compare(a.id, b.id) }) {
		if on == nil || c.h.Core() == on {
			l.endLocked(c, tell)
		}
	}
}

// sayResetLocked puts the reset event among the events of the handler. No message is dispatched
// after it.
func sayResetLocked(c *Conn, ev Reset) {
	c.user.Cease()
	c.out.PutLocked(func() { c.h.Notify(ev) })
}

// endIOLocked closes the handler.
func endIOLocked(c *Conn) {
	c.out.PutLocked(func() {
		c.h.Close(func() {
			c.user.Closed()
			c.closed.send()
		})
	})
}

// Dispatched ends a connection that lingers: no message waits any more (User.Finish).
func (c *Conn) Dispatched() {
	c.m.lock()
	defer c.m.unlock()
	c.m.lingering.endLocked(c, true)
}
