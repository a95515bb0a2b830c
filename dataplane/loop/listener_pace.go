package loop

import "time"

// A connection that is refused at once still costs its accept and its close. So a
// listener that refuses many pauses in between: who connects meanwhile waits in the
// kernel's queue, for some milliseconds, and all who have come in a pause cost one
// wake-up. It refuses no more than one in perRefusal in the long run, which is a fifth
// of a core.

const (
	// perRefusal is what a refusal is taken to occupy.
	perRefusal = 80 * time.Microsecond
	// refusedAhead is how far ahead of its pace a listener may be before it pauses.
	refusedAhead = 2 * time.Millisecond
)

// refusedOne is called for each connection that was refused.
func (l *Listener) refusedOne(c *Core) {
	c.stats.Refused++
	pausing := l.ahead(c) > refusedAhead
	l.pace = max(l.pace, c.now) + perRefusal
	if !pausing && l.ahead(c) > refusedAhead {
		c.stats.AcceptPauses++
		if l.op != 0 {
			c.drv.Cancel(l.op)
		}
	}
}

// ahead is how far the listener is ahead of its pace.
func (l *Listener) ahead(c *Core) time.Duration { return l.pace - c.now }

// again has the listener accept more, at once or behind a pause.
func (l *Listener) again(c *Core) {
	if l.ahead(c) > refusedAhead {
		c.timers.arm(&l.retry, l.pace)
		return
	}
	l.arm(c)
}
