package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// ErrNotBound: the messenger has no address that it could give up.
var ErrNotBound = errors.New("control: not bound")

// Bind listens on one or more addresses, each on every core, and returns them with their
// ports. For a port of 0 it takes the next free one of Config.BindPorts, or
// without such a range one that the kernel chooses. A port on which anybody
// else listens is never shared with him: the error is ErrNoPort, after
// Config.BindRetries. If one of the addresses cannot be bound, none is, and the
// messenger stays usable. A messenger that never binds is a client only.
//
// An address without an IP (0.0.0.0, ::) listens on all of them. Peers are told
// the one under which the first of them sees us, and no other one later.
//
// A messenger is bound once; Rebind gives it other ports. Not for a dispatcher
// on a core.
func (m *Messenger) Bind(addrs ...wire.Addr) (wire.AddrVec, error) {
	done, err := m.beginBinding(context.Background())
	if err != nil {
		return nil, err
	}
	defer done()
	m.mu.Lock()
	again := m.bound
	m.mu.Unlock()
	switch {
	case again:
		return nil, fmt.Errorf("%w: bound twice", ErrConfig)
	case len(addrs) == 0:
		return nil, fmt.Errorf("%w: no address to bind", ErrConfig)
	}
	e, err := m.listenAll(context.Background(), addrs, func(a wire.Addr) portChoice {
		if port := a.AddrPort.Port(); port != 0 {
			return onePort(port)
		}
		return portChoice{from: m.cfg.BindPorts}
	})
	if err != nil {
		return nil, err
	}
	steer := m.newSteering()
	steer.take(m, e.groups)
	m.report(steer)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		steer.close()
		go e.close()
		return nil, ErrShutdown
	}
	m.bound, m.steer = true, steer
	m.settle(e)
	if m.globalSeq == 0 && m.cfg.Nonce != nil {
		// With a fixed nonce a restart has the address of its predecessor, and
		// peers remember the numbers of that one: begin above them.
		m.globalSeq = uint64(m.cfg.Clock.Now().UnixMilli())
	}
	return slices.Clone(m.addrs), nil
}

// beginBinding has Bind and Rebind run one at a time, and not while cores come
// and go or a hand-over is under way; one that begins meanwhile waits. done ends
// it.
func (m *Messenger) beginBinding(ctx context.Context) (done func(), err error) {
	unlock, err := m.lockCores(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mayResize(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// endpoints are the listeners of all addresses.
type endpoints struct {
	addrs  wire.AddrVec            // without their nonce
	groups [][]*dataplane.Listener // of each address, one for each core
}

// listenAll listens on all addresses, or on none.
func (m *Messenger) listenAll(ctx context.Context, addrs []wire.Addr, ports func(wire.Addr) portChoice) (e *endpoints, err error) {
	e = &endpoints{}
	defer func() {
		if err == nil {
			return
		}
		e.close()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.down {
			err = ErrShutdown // whatever the cores said as they stopped
		}
	}()
	for _, a := range addrs {
		if a.Type != wire.AddrMsgr2 {
			return e, fmt.Errorf("%w: cannot listen on %v: only v2 addresses are spoken", ErrConfig, a)
		}
		if !a.AddrPort.IsValid() {
			return e, fmt.Errorf("%w: cannot listen on %v: no address", ErrConfig, a)
		}
		group, err := m.listen(ctx, a.AddrPort.Addr(), ports(a))
		if err != nil {
			return e, fmt.Errorf("bind %v: %w", a, err)
		}
		a.AddrPort = group[0].Addr()
		e.addrs, e.groups = append(e.addrs, a), append(e.groups, group)
	}
	return e, nil
}

// close ends all listeners.
func (e *endpoints) close() {
	for _, g := range e.groups {
		closeListeners(g)
	}
}

func closeListeners(list []*dataplane.Listener) {
	for _, l := range list {
		_ = l.Close() // fails only if the core is gone, and the listener with it
	}
}

// settle makes e what the messenger listens on, under its present nonce. The
// lock is held.
func (m *Messenger) settle(e *endpoints) {
	m.listeners = slices.Concat(e.groups...)
	m.places = nil
	addrs := make(wire.AddrVec, len(e.addrs))
	for i, a := range e.addrs {
		m.places = append(m.places, a.AddrPort.Addr())
		// What was learned before stays.
		if a.IsBlank() && i < len(m.addrs) {
			a = withIP(a, m.addrs[i])
		}
		addrs[i] = a.WithNonce(m.nonce)
	}
	m.setAddrs(addrs)
}

// setAddrs sets what peers are told. The lock is held.
func (m *Messenger) setAddrs(addrs wire.AddrVec) {
	m.addrs = addrs
	if c := m.local; c != nil {
		c.unregister()
		m.register(c)
	}
}
