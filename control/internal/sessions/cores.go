package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// AddCore starts one more core; see control.Messenger.AddCore.
func (m *Manager) AddCore(ctx context.Context) (int, error) {
	core, err := m.resizing.Add(ctx)
	if err != nil {
		return -1, resizeError(err)
	}
	return core.ID(), nil
}

// RemoveCore takes a core out of service; see control.Messenger.RemoveCore.
func (m *Manager) RemoveCore(ctx context.Context, core int) error {
	if err := m.resizing.Remove(ctx, core); err != nil {
		return resizeError(err)
	}
	return nil
}

// resizeError is an error of the resizer as the user knows it.
func resizeError(err error) error {
	if errors.Is(err, loop.ErrStopped) {
		err = ErrShutdown
	}
	return fmt.Errorf("control: %w", err)
}

// Cores are the numbers of the cores, ascending, including cores that have failed or are being
// removed. Any goroutine.
func (m *Manager) Cores() []int {
	var ids []int
	for _, c := range m.plane.All() {
		ids = append(ids, c.ID())
	}
	return ids
}

// resizing is a messenger that gets more cores and fewer: it carries out the steps
// that package resize decides on. The cores own their sockets and handlers, the
// messenger's lock guards the connections.
type resizing struct{ m *Manager }

// Allowed says why the cores must stay as they are.
func (r resizing) Allowed() error {
	r.m.lock()
	defer r.m.unlock()
	return r.m.mayResizeLocked()
}

// mayResizeLocked says why the cores and the listeners must stay as they are, nil if they
// may change.
func (m *Manager) mayResizeLocked() error {
	switch {
	case m.down:
		return ErrShutdown
	case !m.handing.Idle():
		return ErrHandedOver
	}
	return nil
}

// Open starts a core.
func (r resizing) Open() (*loop.Core, error) { return r.m.plane.AddCore() }

// Listen has a new core accept on all addresses.
func (r resizing) Listen(core *loop.Core) error {
	m := r.m
	if err := m.binder.Extend(&m.listeners, core); err != nil {
		return err
	}
	m.steering.Join(core.ID(), m.Cores(), steeringGroups(m.listeners.Groups(), runningCore))
	return nil
}

// Broken says whether the driver of a core has failed.
func (resizing) Broken(core *loop.Core) bool { return core.State() == loop.CoreFailed }

// Find is the core with a number.
func (r resizing) Find(number int) (*loop.Core, error) {
	if c := r.m.plane.Core(number); c != nil {
		return c, nil
	}
	return nil, loop.ErrNoCore
}

// Retire has a core end when it is empty.
func (r resizing) Retire(core *loop.Core) error { return r.m.plane.Drain(core) }

// Unsteer has no rule lead to a core.
func (r resizing) Unsteer(core *loop.Core, forget bool) {
	r.m.steering.Drop(core.ID(), forget)
}

// Evacuate has all connections leave a core that are to leave it now. Lingering ones end.
func (r resizing) Evacuate(core *loop.Core) {
	r.m.lock()
	defer r.m.unlock()
	if !r.m.down {
		r.m.migrateAllLocked(core)
	}
}

// CloseListeners takes the listeners of a core away.
func (r resizing) CloseListeners(core *loop.Core) {
	m := r.m
	m.binder.Leave(&m.listeners, core, m.steering.Migrates(), func(l *loop.Listener, err error) {
		m.cfg.Logger.Warn("listener lost with its core", "core", core.ID(), "addr", l.Addr(), "err", err)
	})
}

// AwaitGone waits until a core has ended.
func (r resizing) AwaitGone(ctx context.Context, core *loop.Core) error {
	return r.m.plane.AwaitDrained(ctx, core)
}

// failedFirst reports a failed core to the Manager, and then to the user. It is one of the last
// calls on that core.
func (m *Manager) failedFirst(user func(*loop.Core, error)) func(*loop.Core, error) {
	return func(c *loop.Core, err error) {
		go m.resizing.Failed(c)
		if user != nil {
			user(c, err)
		}
	}
}

// Connections leave a core that is being removed or has failed: all of them at once
// (migrateAllLocked), a connection that comes to the core too late (arrived), one whose
// handshake has ended there (performLocked), and one whose handshake a hand-over has ended
// (goOnLocked). Package resize decides which of them go.

// migrateAllLocked has all connections leave a core, except for connections in a handshake: they
// follow at its end. A lingering connection ends.
func (m *Manager) migrateAllLocked(core *loop.Core) {
	m.lingering.endAllLocked(core, true)
	for _, c := range m.sortedLocked() {
		if c.factsLocked(core).Leaves(resize.Evacuation) {
			c.migrateLocked(m.pickCore())
		}
	}
}

// factsLocked are the facts for the decision whether the connection leaves a core. It is boarding if an attempt has
// a socket for it, or is about to, and brings the handler to that socket's core.
func (c *Conn) factsLocked(core *loop.Core) resize.Conn {
	f := resize.Conn{Here: c.h.Core() == core, Underway: c.moves.Load() > 0, CoreRuns: runningCore(core)}
	switch c.s.State {
	case session.Accepting, session.Establishing, session.Connecting, session.Replacing:
		f.Boarding = true
	case session.Closing:
		f.Closing = true
	}
	return f
}

// migrateLocked has the connection go to another core, with its socket if it has one.
func (c *Conn) migrateLocked(to *loop.Core) {
	c.moves.Add(1)
	c.shown.place = stats.Placement{Core: to.ID(), Intended: to.ID(), By: stats.ByMove}
	c.shown.publishLocked(&c.s.machine)
	c.m.turns.Expect(to, 1)
	c.out.PutLocked(func() {
		c.h.Migrate(to, func() {
			c.moves.Add(-1)
			if !runningCore(to) {
				go c.arrived(to) // it was removed meanwhile, or has failed
			}
		})
		c.m.turns.Expect(to, -1) // the handler counts there itself from now on
	})
}

// arrived has a connection leave the core to which it has just come, if that is being
// removed or has failed, or end if it lingers. It takes the lock.
func (c *Conn) arrived(core *loop.Core) {
	c.m.lock()
	defer c.m.unlock()
	c.m.lingering.endLocked(c, true)
	c.leaveLocked(resize.Arrival, core)
}

// leaveLocked has the connection leave its core if it is to, and if another one runs.
func (c *Conn) leaveLocked(at resize.Moment, core *loop.Core) {
	if !c.factsLocked(core).Leaves(at) {
		return
	}
	if to := c.m.pickCore(); runningCore(to) {
		c.migrateLocked(to)
	}
}

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
	if core := c.h.Core(); runningCore(core) {
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
	if o.Core == nil {
		return m.pickCore(), stats.ByLoad, nil
	}
	if err := m.placeable(*o.Core); err != nil {
		return nil, "", err
	}
	return m.plane.Core(*o.Core), stats.ByUser, nil
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
