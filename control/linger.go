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

// tellReset has the handler of a closed connection say that it is over, at once
// or when it has lingered. The lock is held.
func (c *Conn) tellReset(ev resetEvent) {
	m := c.m
	c.line.flush()
	lingers := c.h.Core().State() == dataplane.CoreRunning && c.queue.finish(c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		c.endLingering(true)
	})
	if !lingers {
		c.sayReset(ev)
		return
	}
	m.lingering[c] = ev
	c.out.put(func() { c.h.Delay(false, nil) }) // its socket is of no use any more
}

// closeIO ends the handler of a closed connection, unless it lingers. The lock is
// held.
func (c *Conn) closeIO() {
	if _, lingers := c.m.lingering[c]; !lingers {
		c.endIO()
	}
}

// endLingering is the end of a connection that lingers, if it still does. tell:
// with its reset event. The lock is held.
func (c *Conn) endLingering(tell bool) {
	ev, lingers := c.m.lingering[c]
	if !lingers {
		return
	}
	delete(c.m.lingering, c)
	if tell {
		c.sayReset(ev)
	}
	c.over.Store(true)
	c.endIO()
}

// sayReset puts the reset event among those of the handler. Nothing is dispatched
// behind it. The lock is held.
func (c *Conn) sayReset(ev resetEvent) {
	c.over.Store(true)
	c.out.put(func() { c.h.Notify(ev) })
}

// endIO closes the handler. The lock is held.
func (c *Conn) endIO() {
	c.out.put(func() {
		c.h.Close(func() {
			c.over.Store(true)
			c.calls.lose(c)
			c.postings.lose(c)
			c.closed.send()
		})
	})
}

// endLingering ends the connections that linger on a core, nil: on all, without
// what waits for Queued. The lock is held.
func (m *Messenger) endLingering(on *dataplane.Core, tell bool) {
	for _, c := range slices.SortedFunc(maps.Keys(m.lingering), func(a, b *Conn) int { return cmp.Compare(a.id, b.id) }) {
		if on == nil || c.h.Core() == on {
			c.endLingering(tell)
		}
	}
}
