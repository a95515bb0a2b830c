package control

import (
	"context"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// resizing is a messenger that gets more cores and fewer: it carries out the steps
// that package resize decides on. The cores own their sockets and handlers, the
// messenger's lock guards the connections.
type resizing struct{ m *Messenger }

// Allowed says why the cores must stay as they are.
func (r resizing) Allowed() error {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return r.m.mayResize()
}

// mayResize says why the cores and the listeners must stay as they are, nil if they
// may change. The lock is held.
func (m *Messenger) mayResize() error {
	switch {
	case m.down:
		return ErrShutdown
	case !m.handing.Idle():
		return ErrHandedOver
	}
	return nil
}

// Open starts a core.
func (r resizing) Open() (*dataplane.Core, error) { return r.m.plane.AddCore() }

// Listen has a new core accept on all addresses.
func (r resizing) Listen(core *dataplane.Core) error {
	m := r.m
	if err := m.binder.Extend(&m.listeners, core); err != nil {
		return err
	}
	m.steering.Join(core.ID(), m.Cores(), steeringGroups(m.listeners.Groups(), runningCore))
	return nil
}

// Broken says whether the driver of a core has failed.
func (resizing) Broken(core *dataplane.Core) bool { return core.State() == dataplane.CoreFailed }

// Find is the core with a number.
func (r resizing) Find(number int) (*dataplane.Core, error) {
	if c := r.m.plane.Core(number); c != nil {
		return c, nil
	}
	return nil, ErrNoCore
}

// Retire has a core end when it is empty.
func (r resizing) Retire(core *dataplane.Core) error { return r.m.plane.Drain(core) }

// Unsteer has no rule lead to a core.
func (r resizing) Unsteer(core *dataplane.Core, forget bool) {
	r.m.steering.Drop(core.ID(), forget)
}

// Evacuate has all connections leave a core that are to leave it now. Those that
// linger there end.
func (r resizing) Evacuate(core *dataplane.Core) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if !r.m.down {
		r.m.migrateAll(core)
	}
}

// CloseListeners takes the listeners of a core away.
func (r resizing) CloseListeners(core *dataplane.Core) {
	m := r.m
	m.binder.Leave(&m.listeners, core, m.steering.Migrates(), func(l *dataplane.Listener, err error) {
		m.cfg.Logger.Warn("listener lost with its core", "core", core.ID(), "addr", l.Addr(), "err", err)
	})
}

// AwaitGone waits until a core has ended.
func (r resizing) AwaitGone(ctx context.Context, core *dataplane.Core) error {
	return r.m.plane.AwaitDrained(ctx, core)
}

// failedFirst tells the messenger of a failed core, and then the user. It is one of
// the last things that run on that core.
func (m *Messenger) failedFirst(user func(*dataplane.Core, error)) func(*dataplane.Core, error) {
	return func(c *dataplane.Core, err error) {
		go m.resizing.Failed(c)
		if user != nil {
			user(c, err)
		}
	}
}
