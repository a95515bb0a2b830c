package sessions

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// newSteerer makes the Steerer of our listeners.
func (m *Manager) newSteerer() *steering.Steerer {
	c := m.cfg.Steering
	c.Load, c.Logger, c.Waits = bpf.Load, m.cfg.Logger, m.mu.Check.Waits
	return steering.New(c)
}

// steeringGroups are groups of listeners in the form of package steering: listeners on cores
// for which keep returns true.
func steeringGroups(groups []binding.Group, keep func(*loop.Core) bool) []steering.Group {
	var out []steering.Group
	for _, group := range groups {
		g := steering.Group{Addr: group.Addr()}
		for _, l := range group {
			if core := l.Core(); keep(core) {
				g.Listeners = append(g.Listeners, steering.Listener{Core: core.ID(), FD: l.FD()})
			}
		}
		if len(g.Listeners) > 0 {
			out = append(out, g)
		}
	}
	return out
}

func anyCore(*loop.Core) bool { return true }

func runningCore(c *loop.Core) bool { return c.State() == loop.CoreRunning }

// running are the cores that can be given work.
func (m *Manager) running() []*loop.Core { return placement.Running(m.plane.All()) }

// pickCore is the core for one more connection, by its load.
func (m *Manager) pickCore() *loop.Core { return m.turns.Pick(m.plane.All()) }

// dialCoreLocked is the core to dial from: the connection's own if it can be.
func (m *Manager) dialCoreLocked(c *Conn) *loop.Core {
	if core := c.h.Core(); core.State() == loop.CoreRunning {
		return core
	}
	return m.pickCore()
}

// placeable says whether the user may name a core.
func (m *Manager) placeable(core int) error {
	if c := m.plane.Core(core); c == nil || c.State() == loop.CoreDraining {
		return fmt.Errorf("%w: core %d, there are %v", ErrConfig, core, m.Cores())
	}
	return nil
}

// placeLocked chooses the core of an outgoing connection.
func (m *Manager) placeLocked(o *ConnectOptions) (*loop.Core, string, error) {
	switch {
	case o.Core != nil:
		if err := m.placeable(*o.Core); err != nil {
			return nil, "", err
		}
		return m.plane.Core(*o.Core), stats.ByUser, nil
	}
	return m.pickCore(), stats.ByLoad, nil
}

// dialledPlace is the placement after a dial of our own, which never leaves the core: its first
// reason stays, unless an accepted socket came in between.
func dialledPlace(p stats.Placement, core *loop.Core) stats.Placement {
	by := steering.BySession
	if p.By == stats.ByLoad || p.By == stats.ByUser {
		by = p.By
	}
	return stats.Placement{Core: core.ID(), Intended: core.ID(), By: by}
}

// judge says whether an accepted socket arrived where it should; had is the core
// that owns its session, nil for a new one.
func (a *accepting) judge(had *loop.Core) stats.Placement {
	core := a.link.Core().ID()
	at := steering.Accepted{Peer: a.link.PeerAddr(), Core: core, Owner: steering.NoCore, Pin: a.pin, Pinned: a.pinned}
	if had != nil {
		at.Owner = had.ID()
	}
	v := a.m.steering.Judge(at)
	return stats.Placement{Core: core, Intended: v.Intended, By: v.By, Reason: v.Reason}
}
