package control

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// A connection that ends with a reset event may have messages that were
// received, and maybe acknowledged, and wait for Queued. They are dispatched
// first: until then the connection lingers, closed to everybody else. So what
// was received is dispatched, or belongs to a connection that the user or a
// shutdown has ended, or is dropped behind the reset event that says so.
//
// Every connection ends here, and then loses its calls and postings.

// lingering are the closed connections of a messenger, but for what waits for Queued, with
// the reset event that each of them ends with. The messenger's lock guards them.
type lingering map[*Conn]resetEvent

// tellReset has the handler of a closed connection say that it is over, at once
// or when it has lingered. The lock is held.
func (l lingering) tellReset(c *Conn, ev resetEvent) {
	c.line.flush()
	lingers := c.h.Core().State() == dataplane.CoreRunning && c.queue.finish(c, func() {
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		l.end(c, true)
	})
	if !lingers {
		sayReset(c, ev)
		return
	}
	l[c] = ev
	c.out.put(func() { c.h.Delay(false, nil) }) // its socket is of no use any more
}

// closeIO ends the handler of a closed connection, unless it lingers. The lock is
// held.
func (l lingering) closeIO(c *Conn) {
	if _, lingers := l[c]; !lingers {
		endIO(c)
	}
}

// end is the end of a connection that lingers, if it still does. tell: with its reset
// event. The lock is held.
func (l lingering) end(c *Conn, tell bool) {
	ev, lingers := l[c]
	if !lingers {
		return
	}
	delete(l, c)
	if tell {
		sayReset(c, ev)
	}
	c.over.Store(true)
	endIO(c)
}

// endAll ends the connections that linger on a core, nil: on all, without what waits
// for Queued. The lock is held.
func (l lingering) endAll(on *dataplane.Core, tell bool) {
	for _, c := range slices.SortedFunc(maps.Keys(l), func(a, b *Conn) int { return cmp.Compare(a.id, b.id) }) {
		if on == nil || c.h.Core() == on {
			l.end(c, tell)
		}
	}
}

// sayReset puts the reset event among those of the handler. Nothing is dispatched
// behind it. The lock is held.
func sayReset(c *Conn, ev resetEvent) {
	c.over.Store(true)
	c.out.put(func() { c.h.Notify(ev) })
}

// endIO closes the handler. The lock is held.
func endIO(c *Conn) {
	c.out.put(func() {
		c.h.Close(func() {
			c.over.Store(true)
			c.calls.lose(c)
			c.postings.lose(c)
			c.reads.lose()
			c.closed.send()
		})
	})
}
