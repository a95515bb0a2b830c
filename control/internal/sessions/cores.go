package sessions

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
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
// (migrateAllLocked), a connection that comes to the core too late (arrived), and one whose
// handshake has ended there (stepEndedLocked). Package resize decides which of them go.

// migrateAllLocked has all connections leave a core, except for connections in a handshake: they
// follow at its end. A lingering connection ends.
func (m *Manager) migrateAllLocked(core *loop.Core) {
	m.lingering.endAllLocked(core, true)
	for _, c := range m.sortedLocked() {
		if c.leaving.factsLocked(c, core).Leaves(resize.Evacuation) {
			c.leaving.migrateLocked(c, m.pickCore())
		}
	}
}

// leaving are the moves under way of one connection, from a core that is removed or has
// failed.
type leaving struct{ moves atomic.Int32 }

// factsLocked are the facts for the decision whether the connection leaves a core.
func (l *leaving) factsLocked(c *Conn, core *loop.Core) resize.Conn {
	return resize.Conn{
		Here: c.h.Core() == core, Boarding: c.s.movingToSocketLocked(), Underway: l.moves.Load() > 0, Closing: c.s.State == session.Closing,
		CoreRuns: runningCore(core),
	}
}

// migrateLocked has the connection go to another core, with its socket if it has one.
func (l *leaving) migrateLocked(c *Conn, to *loop.Core) {
	l.moves.Add(1)
	c.shown.place = stats.Placement{Core: to.ID(), Intended: to.ID(), By: stats.ByMove}
	c.shown.publishLocked(&c.s.machine)
	c.m.turns.Expect(to, 1)
	c.out.PutLocked(func() {
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
func (l *leaving) arrived(c *Conn, core *loop.Core) {
	c.m.lock()
	defer c.m.unlock()
	c.m.lingering.endLocked(c, true)
	l.leaveLocked(c, resize.Arrival, core)
}

// stepEndedLocked has the connection leave its core if that is being removed or has failed, in
// whatever state it is after a step.
func (l *leaving) stepEndedLocked(c *Conn) { l.leaveLocked(c, resize.StepEnded, c.h.Core()) }

// leaveLocked has the connection leave its core if it is to, and if another one runs.
func (l *leaving) leaveLocked(c *Conn, at resize.Moment, core *loop.Core) {
	if !l.factsLocked(c, core).Leaves(at) {
		return
	}
	if to := c.m.pickCore(); runningCore(to) {
		l.migrateLocked(c, to)
	}
}
