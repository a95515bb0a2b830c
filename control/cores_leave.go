package control

import (
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// How connections leave a core that is being removed or has failed: all of them
// at once (migrateAll), one that comes to it too late (arrived), one whose
// handshake has ended there (stepEnded). Which of them go is decided in package resize.

// migrateAll has all connections leave a core, but for those whose handshake is
// under way: they follow when it ends. One that lingers there ends. The lock is
// held.
func (m *Messenger) migrateAll(core *dataplane.Core) {
	m.lingering.endAll(core, true)
	for _, c := range m.sorted() {
		if c.leaving.facts(c, core).Leaves(resize.Evacuation) {
			c.leaving.migrate(c, m.pickCore())
		}
	}
}

// leaving are the moves under way of one connection, from a core that is removed or has
// failed. The lock is held where they begin.
type leaving struct{ moves atomic.Int32 }

// facts are those by which it is decided whether the connection leaves a core.
func (l *leaving) facts(c *Conn, core *dataplane.Core) resize.Conn {
	return resize.Conn{
		Here: c.h.Core() == core, Boarding: c.s.movingToSocket(), Underway: l.moves.Load() > 0, Closing: c.s.State == StateClosing,
		CoreRuns: runningCore(core),
	}
}

// migrate has the connection go to another core, with its socket if it has one.
func (l *leaving) migrate(c *Conn, to *dataplane.Core) {
	l.moves.Add(1)
	c.shown.place = Placement{Core: to.ID(), Intended: to.ID(), By: stats.ByMove}
	c.shown.publish(&c.s.machine)
	c.m.turns.Expect(to, 1)
	c.out.put(func() {
		c.h.Migrate(to, func() {
			l.moves.Add(-1)
			if !runningCore(to) {
				go l.arrived(c, to) // it was removed meanwhile, or has failed
			}
		})
		c.m.turns.Expect(to, -1) // the handler counts there itself from now on
	})
}

// arrived has a connection leave the core to which it has just come, if that is being
// removed or has failed, or end if it lingers. It takes the lock.
func (l *leaving) arrived(c *Conn, core *dataplane.Core) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.lingering.end(c, true)
	l.leave(c, resize.Arrival, core)
}

// stepEnded has the connection leave its core if that is being removed or has failed, in
// whatever state it is after a step.
func (l *leaving) stepEnded(c *Conn) { l.leave(c, resize.StepEnded, c.h.Core()) }

// leave has the connection leave its core if it is to, and if another one runs.
func (l *leaving) leave(c *Conn, at resize.Moment, core *dataplane.Core) {
	if !l.facts(c, core).Leaves(at) {
		return
	}
	if to := c.m.pickCore(); runningCore(to) {
		l.migrate(c, to)
	}
}
