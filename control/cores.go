package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/old"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Errors of AddCore and RemoveCore.
var (
	// ErrNoCore: there is no core of that number.
	ErrNoCore = dataplane.ErrNoCore
	// ErrLastCore: no other core runs that could take over.
	ErrLastCore = dataplane.ErrLastCore
)

// Cores come and go in one place at a time: whoever holds resizing. What a core
// has is owned as ever: its sockets and handlers by the core, the listeners'
// list, the steering and the connections by the messenger's lock.

// lockCores waits for its turn to change the cores, or the listeners.
func (m *Messenger) lockCores(ctx context.Context) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case m.resizing <- struct{}{}:
		return func() { <-m.resizing }, nil
	case <-m.ctx.Done():
		return nil, context.Cause(m.ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mayResize says why the cores must stay as they are, nil if they may change.
// The lock is held.
func (m *Messenger) mayResize() error {
	switch {
	case m.down:
		return ErrShutdown
	case m.handing != handingNone:
		return ErrHandedOver
	}
	return nil
}

// AddCore starts one more core and returns its number, the lowest that is free.
// The core listens on all our addresses, has its place in the steering of new
// connections, and gets its share of those that we make. Connections that
// exist stay where they are.
//
// With the owner hint, peers reach the new core by the cookies that they get
// from here on. If it is the first with so high a number, the cookies of before
// name cores by another count: their peers may come back to another core than
// their session's, which moves as without hints.
//
// Messages in flight, connects and sessions do not notice. ctx bounds the wait
// for others that change the cores, and for a core that is stuck in a callback;
// with its error there is no further core in the end. Not for a dispatcher on a
// core.
func (m *Messenger) AddCore(ctx context.Context) (int, error) {
	unlock, err := m.lockCores(ctx)
	if err != nil {
		return -1, fmt.Errorf("control: add a core: %w", err)
	}
	m.mu.Lock()
	err = m.mayResize()
	m.mu.Unlock()
	if err != nil {
		unlock()
		return -1, err
	}
	core, err := m.plane.AddCore()
	if err != nil {
		unlock()
	} else {
		added := make(chan error, 1)
		var decided atomic.Bool // that it stays, or that nobody waits for it
		go func() {
			defer unlock()
			added <- m.employ(ctx, core, &decided)
		}()
		select {
		case err = <-added:
		case <-ctx.Done():
			if err = context.Cause(ctx); !decided.CompareAndSwap(false, true) {
				err = <-added
			}
		}
	}
	if errors.Is(err, dataplane.ErrStopped) {
		err = ErrShutdown
	}
	if err != nil {
		return -1, fmt.Errorf("control: %w", err)
	}
	return core.ID(), nil
}

// employ has a new core listen, or removes it.
func (m *Messenger) employ(ctx context.Context, core *dataplane.Core, decided *atomic.Bool) error {
	err := m.listenOn(core)
	if err == nil && !decided.CompareAndSwap(false, true) {
		err = context.Cause(ctx)
	}
	if err != nil {
		m.giveUp(core)
	}
	return err
}

// giveUp removes a core that could not be used.
func (m *Messenger) giveUp(core *dataplane.Core) {
	m.mu.Lock()
	drained := m.plane.Drain(core) == nil
	if drained {
		m.steer.drop(core.ID(), true)
		m.evacuate(core)
	}
	m.mu.Unlock()
	if drained {
		m.vacate(core)
	}
}

// RemoveCore takes a core out of service while everything goes on: no new
// connection is placed on it, its listeners are closed or served by another
// core, its connections move to the others, and its thread ends. It fails with
// ErrLastCore for the only core that runs.
//
// Connections move with their sockets, lossy ones too: nothing is lost, doubled
// or reordered, and the peer sees nothing. The user sees Dispatcher.Move and
// Moved. Handshakes that are under way end on the core first. No connect is
// refused: what waits at a listener moves to another one where the steering
// program does that; without, the listening socket stays open, and another core
// accepts from it until a core is added again.
//
// A connection leaves when its last write has ended, so a peer that does not
// read can hold up the removal. ctx bounds that: when it ends, what is left
// faults as if its TCP connection had broken (lossless sessions come back on
// another core, lossy ones are reset), the error of ctx is returned, and the
// removal goes on by itself, as soon as no callback of the core is stuck. It
// cannot be taken back.
//
// A core that has failed is removed in the same way; it has nothing any more.
// Pins to the core (PinPeer) end. Its number is the first to be used again.
// Not for a dispatcher on a core.
func (m *Messenger) RemoveCore(ctx context.Context, core int) error {
	unlock, err := m.lockCores(ctx)
	if err != nil {
		return fmt.Errorf("control: remove core %d: %w", core, err)
	}
	m.mu.Lock()
	c := m.plane.Core(core)
	if err = m.mayResize(); err == nil {
		err = ErrNoCore
		if c != nil {
			err = m.plane.Drain(c)
		}
	}
	if err != nil {
		m.mu.Unlock()
		unlock()
		if errors.Is(err, dataplane.ErrStopped) {
			err = ErrShutdown
		}
		return fmt.Errorf("control: remove core %d: %w", core, err)
	}
	m.steer.drop(c.ID(), true)
	m.evacuate(c)
	m.mu.Unlock()

	vacated := make(chan struct{})
	go func() {
		defer close(vacated)
		defer unlock() // a stuck core keeps its listeners, and nobody else may move them
		m.vacate(c)
	}()
	err = m.plane.AwaitDrained(ctx, c)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	select {
	case <-vacated:
		return nil
	case <-ctx.Done(): // a core that is to take a listener over is stuck
		return fmt.Errorf("control: remove core %d: %w", core, context.Cause(ctx))
	}
}

// Cores are the numbers of the cores, ascending, those included that have
// failed or are being removed. Any goroutine.
func (m *Messenger) Cores() []int {
	var ids []int
	for _, c := range m.plane.All() {
		ids = append(ids, c.ID())
	}
	return ids
}

// running are the cores that can be given work.
func (m *Messenger) running() []*dataplane.Core {
	all := m.plane.All()
	for _, c := range all {
		if c.State() != dataplane.CoreRunning {
			return slices.DeleteFunc(slices.Clone(all), func(c *dataplane.Core) bool { return c.State() != dataplane.CoreRunning })
		}
	}
	return all
}

// evacuate has all connections leave a core, but for those whose handshake is
// under way: they follow when it ends (leaveCore). Those that are about to leave
// for another core, or to arrive, are left alone: a second Migrate would break
// the TCP connection that the first one waits for. The lock is held.
func (m *Messenger) evacuate(core *dataplane.Core) {
	for _, c := range m.sorted() {
		if c.h.Core() != core || c.boarding() || c.migrating.Load() > 0 {
			continue
		}
		c.migrate(m.emptiest())
	}
}

// emptiest is the healthy core with the fewest connections, those that are on
// their way counted in.
func (m *Messenger) emptiest() *dataplane.Core {
	var best *dataplane.Core
	for _, c := range m.running() {
		if best == nil || c.Healthy() && !best.Healthy() || c.Healthy() == best.Healthy() && c.Load() < best.Load() {
			best = c
		}
	}
	if best == nil {
		best = m.pickCore() // all have failed
	}
	return best
}

// boarding says that an attempt has a socket for the connection, or is about
// to, and brings the handler to that socket's core. The lock is held.
func (c *Conn) boarding() bool {
	switch c.state {
	case StateAccepting, StateEstablishing, StateConnecting, StateReplacing:
		return true
	}
	return false
}

// migrate has the connection go to another core, with its socket if it has one.
// The lock is held.
func (c *Conn) migrate(to *dataplane.Core) {
	c.migrating.Add(1)
	c.place = Placement{Core: to.ID(), Intended: to.ID(), By: byMove}
	c.h.Migrate(to, func() {
		c.migrating.Add(-1)
		if to.State() != dataplane.CoreRunning {
			go c.arrived(to) // it was removed meanwhile, or has failed
		}
	})
}

// arrived has a connection leave the core at which it has just arrived.
func (c *Conn) arrived(core *dataplane.Core) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.h.Core() == core && !c.boarding() {
		c.leaveCore(core)
	}
}

// leaveCore has the connection leave a core that is being removed or has
// failed. The lock is held.
func (c *Conn) leaveCore(core *dataplane.Core) {
	if core.State() != dataplane.CoreRunning && c.migrating.Load() == 0 && c.state != StateClosing {
		if to := c.m.emptiest(); to.State() == dataplane.CoreRunning {
			c.migrate(to)
		}
	}
}

// failedFirst has the messenger hear of a failed core before the user does.
func (m *Messenger) failedFirst(user func(*dataplane.Core, error)) func(*dataplane.Core, error) {
	return func(c *dataplane.Core, err error) {
		m.coreFailed(c, err)
		if user != nil {
			user(c, err)
		}
	}
}

// coreFailed runs on a core whose driver broke, as one of its last acts.
func (m *Messenger) coreFailed(core *dataplane.Core, _ error) {
	go func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.down {
			return
		}
		m.steer.drop(core.ID(), false)
		m.evacuate(core)
	}()
}

// dialCore is the core to dial from: the connection's own if it can be. The
// lock is held.
func (m *Messenger) dialCore(c *Conn) *dataplane.Core {
	if core := c.h.Core(); core.State() == dataplane.CoreRunning {
		return core
	}
	return m.pickCore()
}

// groups are the listeners of each address, in the order of the addresses. The
// lock is held.
func (m *Messenger) groups() [][]*dataplane.Listener {
	var groups [][]*dataplane.Listener
next:
	for _, l := range m.listeners {
		for i, g := range groups {
			if g[0].Addr() == l.Addr() {
				groups[i] = append(g, l)
				continue next
			}
		}
		groups = append(groups, []*dataplane.Listener{l})
	}
	return groups
}

// listenOn has a new core accept on all addresses.
func (m *Messenger) listenOn(core *dataplane.Core) error {
	m.mu.Lock()
	groups := m.groups()
	m.mu.Unlock()
	for _, group := range groups {
		l, gone, err := m.listenAt(group, core)
		if err != nil {
			return fmt.Errorf("core %d: listen on %v: %w", core.ID(), group[0].Addr(), err)
		}
		m.mu.Lock()
		bound := slices.Contains(m.listeners, group[0])
		if bound && !slices.Contains(m.listeners, l) {
			m.listeners = append(m.listeners, l)
		}
		m.forget(gone)
		m.mu.Unlock()
		if !bound {
			_ = l.Close() // Unbind or Shutdown came between
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steerTo(core)
	return nil
}

// listenAt has a new core accept on the address of a group: with a listener that
// another core can spare, or with one of its own. gone are those of the group
// that have ended with their cores.
func (m *Messenger) listenAt(group []*dataplane.Listener, core *dataplane.Core) (l *dataplane.Listener, gone []*dataplane.Listener, err error) {
	open, gone, err := shared(group)
	if err != nil {
		return nil, nil, err
	}
	if l = spare(open); l != nil {
		return l, gone, l.Move(core)
	}
	// If none is left the group begins anew.
	l, err = core.Listen(group[0].Addr(), uring.ListenOptions{ReusePort: true, Exclusive: len(open) == 0}, m.accepted)
	return l, gone, err
}

// forget takes listeners that have ended out of the list. The lock is held.
func (m *Messenger) forget(gone []*dataplane.Listener) {
	m.listeners = slices.DeleteFunc(slices.Clone(m.listeners), func(l *dataplane.Listener) bool { return slices.Contains(gone, l) })
}

// spare is a listener whose core has another one of the same address; nil if
// there is none.
func spare(group []*dataplane.Listener) *dataplane.Listener {
	seen := make(map[*dataplane.Core]bool)
	for _, l := range group {
		if seen[l.Core()] {
			return l
		}
		seen[l.Core()] = true
	}
	return nil
}

// vacate takes the listeners of a core away.
func (m *Messenger) vacate(core *dataplane.Core) {
	m.mu.Lock()
	migrates := m.steer.migrates()
	var mine []*dataplane.Listener
	turn := make(map[*dataplane.Listener]*dataplane.Core)
	serves := make(map[*dataplane.Core]int)
	for _, l := range m.listeners {
		serves[l.Core()]++
	}
	for _, l := range m.listeners {
		if l.Core() != core {
			continue
		}
		mine = append(mine, l)
		var to *dataplane.Core
		for _, c := range m.running() {
			if to == nil || serves[c] < serves[to] {
				to = c
			}
		}
		if to != nil {
			serves[to]++
		}
		turn[l] = to
	}
	if migrates {
		m.forget(mine)
	}
	m.mu.Unlock()
	for _, l := range mine {
		var err error
		if to := turn[l]; migrates || to == nil {
			err = l.Close()
		} else {
			err = l.Move(to)
		}
		if err != nil && !errors.Is(err, dataplane.ErrLinkClosed) && !errors.Is(err, dataplane.ErrStopped) {
			m.cfg.Logger.Warn("listener lost with its core", "core", core.ID(), "addr", l.Addr(), "err", err)
		}
	}
}

// joinGroup opens one more socket of an address. Those that are there must be
// open for company, which a single one is not by itself.
func (m *Messenger) joinGroup(group []*dataplane.Listener, at netip.AddrPort, core *dataplane.Core) (*dataplane.Listener, error) {
	if _, _, err := shared(group); err != nil {
		return nil, err
	}
	return core.Listen(at, uring.ListenOptions{ReusePort: true}, m.accepted)
}

// shared lets others listen on the address of a group. gone are those of it that
// have ended with their cores.
func shared(group []*dataplane.Listener) (open, gone []*dataplane.Listener, err error) {
	for _, l := range group {
		err := l.Share()
		switch {
		case err == nil:
			open = append(open, l)
		case errors.Is(err, dataplane.ErrLinkClosed), errors.Is(err, dataplane.ErrStopped):
			gone = append(gone, l)
		default:
			return nil, nil, err
		}
	}
	return open, gone, nil
}
