package control

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// running are the cores that can be given work.
func (m *Messenger) running() []*dataplane.Core { return placement.Running(m.plane.All()) }

// pickCore is the core for one more connection, by its load.
func (m *Messenger) pickCore() *dataplane.Core { return m.turns.Pick(m.plane.All()) }

// dialCore is the core to dial from: the connection's own if it can be. The
// lock is held.
func (m *Messenger) dialCore(c *Conn) *dataplane.Core {
	if core := c.h.Core(); core.State() == dataplane.CoreRunning {
		return core
	}
	return m.pickCore()
}

// placeable says whether the user may name a core.
func (m *Messenger) placeable(core int) error {
	if c := m.plane.Core(core); c == nil || c.State() == dataplane.CoreDraining {
		return fmt.Errorf("%w: core %d, there are %v", ErrConfig, core, m.Cores())
	}
	return nil
}

// place chooses the core of an outgoing connection. The lock is held.
func (m *Messenger) place(o *connectOptions) (*dataplane.Core, string, error) {
	switch {
	case o.with != nil:
		if o.with.m != m {
			return nil, "", fmt.Errorf("%w: SameCore with a connection of another messenger", ErrConfig)
		}
		return m.dialCore(o.with), stats.BySameCore, nil
	case o.hasCore:
		if err := m.placeable(o.core); err != nil {
			return nil, "", err
		}
		return m.plane.Core(o.core), stats.ByUser, nil
	}
	return m.pickCore(), stats.ByLoad, nil
}

// SameCore has the core that owns c at this moment own the new connection, too:
// what a dispatcher of c sends on it then never changes threads. Without this and
// without OnCore the core with the fewest connections gets it.
func SameCore(c *Conn) ConnectOption { return func(o *connectOptions) { o.with = c } }

// dialledPlace is the placement behind a dial of our own, which never leaves the
// core: by what chose it first, unless an accepted socket came between.
func dialledPlace(p Placement, core *dataplane.Core) Placement {
	by := steering.BySession
	if p.By == stats.ByLoad || p.By == stats.ByUser || p.By == stats.BySameCore {
		by = p.By
	}
	return Placement{Core: core.ID(), Intended: core.ID(), By: by}
}

// judge says whether an accepted socket arrived where it should; had is the core
// that owns its session, nil for a new one.
func (a *accepting) judge(had *dataplane.Core) Placement {
	core := a.link.Core().ID()
	at := steering.Accepted{Peer: a.link.PeerAddr(), Core: core, Owner: steering.NoCore, Pin: a.pin, Pinned: a.pinned}
	if had != nil {
		at.Owner = had.ID()
	}
	v := a.m.steering.Judge(at)
	return Placement{Core: core, Intended: v.Intended, By: v.By, Reason: v.Reason}
}
