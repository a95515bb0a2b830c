package control

import (
	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// How connections leave a core that is being removed or has failed: all of them
// at once (migrateAll), one that comes to it too late (leaveIfDraining), one whose
// handshake has ended there (leaveCore). Which of them go is decided in package resize.

// migrateAll has all connections leave a core, but for those whose handshake is
// under way: they follow when it ends. One that lingers there ends. The lock is
// held.
func (m *Messenger) migrateAll(core *dataplane.Core) {
	m.endLingering(core, true)
	for _, c := range m.sorted() {
		if c.at(core).Leaves(resize.Evacuation) {
			c.migrate(m.pickCore())
		}
	}
}

// at are the facts by which it is decided whether the connection leaves a core. The
// lock is held.
func (c *Conn) at(core *dataplane.Core) resize.Conn {
	return resize.Conn{
		Here: c.h.Core() == core, Boarding: c.movingToSocket(), Underway: c.migrating.Load() > 0, Closing: c.s.State == StateClosing,
		CoreRuns: runningCore(core),
	}
}

// movingToSocket says that an attempt has a socket for the connection, or is about
// to, and brings the handler to that socket's core. The lock is held.
func (c *Conn) movingToSocket() bool {
	switch c.s.State {
	case StateAccepting, StateEstablishing, StateConnecting, StateReplacing:
		return true
	}
	return false
}

// migrate has the connection go to another core, with its socket if it has one.
// The lock is held.
func (c *Conn) migrate(to *dataplane.Core) {
	c.migrating.Add(1)
	c.shown.place = Placement{Core: to.ID(), Intended: to.ID(), By: byMove}
	c.shown.publish(&c.s.machine)
	c.m.turns.Expect(to, 1)
	c.out.put(func() {
		c.h.Migrate(to, func() {
			c.migrating.Add(-1)
			if !runningCore(to) {
				go c.leaveIfDraining(to) // it was removed meanwhile, or has failed
			}
		})
		c.m.turns.Expect(to, -1) // the handler counts there itself from now on
	})
}

// leaveIfDraining has a connection leave the core to which it has just come, if that
// is being removed or has failed, or end if it lingers.
func (c *Conn) leaveIfDraining(core *dataplane.Core) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.endLingering(true)
	c.leaveAt(resize.Arrival, core)
}

// leaveCore has the connection leave its core if that is being removed or has
// failed, in whatever state it is after a step. The lock is held.
func (c *Conn) leaveCore(core *dataplane.Core) { c.leaveAt(resize.StepEnded, core) }

// leaveAt has the connection leave its core if it is to, and if another one runs. The
// lock is held.
func (c *Conn) leaveAt(at resize.Moment, core *dataplane.Core) {
	if !c.at(core).Leaves(at) {
		return
	}
	if to := c.m.pickCore(); runningCore(to) {
		c.migrate(to)
	}
}
