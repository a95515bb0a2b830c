package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// ErrRebound is why connections are over that a Rebind marked down. It wraps
// ErrMarkedDown.
var ErrRebound = fmt.Errorf("control: another address was bound: %w", ErrMarkedDown)

// Rebind gives a bound messenger other ports and another nonce, for example
// because the cluster took us for dead under the old address. The ports come
// from Config.BindPorts, or from the kernel without such a range; they are
// neither those that we have nor any of avoid. It returns the new addresses.
//
// All connections are marked down, that to ourselves included: there is no
// reset event here, what is queued is dropped, and Conn.Err is ErrRebound. Peers
// see what their policies make of a broken connection; as the old address is
// gone for good, those that keep a session should mark it down. Connections
// that are made or accepted from then on have the new address. One that is
// made while Rebind runs may be marked down with the others.
//
// The new address accepts before the old one stops, so that an error leaves
// everything as it was: the address, the nonce and all connections. Errors are
// ErrNotBound, ErrNoPort if all ports are in use or to be avoided, ErrShutdown,
// ErrHandedOver if a hand-over came first, and the cause of ctx. That bounds
// Config.BindRetries, and the wait for a hand-over, for cores that come and go,
// and for another Rebind. A messenger that does not listen because of Unbind
// listens again.
//
// Owner hints and pins (PinPeer) hold for the new address. A successor that
// takes over from here (HandOver) gets the new nonce; its Config.Nonce must be
// nil.
//
// It may be called at any time, while others send, connect or accept. Not for a
// dispatcher on a core.
func (m *Messenger) Rebind(ctx context.Context, avoid ...uint16) (wire.AddrVec, error) {
	done, err := m.beginBinding(ctx)
	if err != nil {
		return nil, fmt.Errorf("rebind: %w", err)
	}
	defer done()
	m.mu.Lock()
	at, ports := m.identity.elsewhere(m.cfg.BindPorts, avoid)
	taken := m.listeners.Taken()
	m.mu.Unlock()
	if at == nil {
		return nil, fmt.Errorf("rebind: %w", ErrNotBound)
	}
	e, err := m.listenAll(ctx, at, func(wire.Addr) binding.Ports { return ports })
	if err != nil {
		return nil, fmt.Errorf("rebind: %w", err)
	}
	// The old address is not steered from here on, until it closes.
	m.steering.Follow(taken, m.Cores(), steeringGroups(e.groups, anyCore))
	old, addrs, err := m.swap(e, taken, uint32(m.random.next()))
	if err != nil {
		m.steering.Close(taken + 1) // nothing listens any more
		e.close()
		return nil, fmt.Errorf("rebind: %w", err)
	}
	binding.Close(old)
	return addrs, nil
}

// swap is the moment at which the new address takes the place of the old one. It
// returns the listeners of that, to be closed. nonce is a random one.
func (m *Messenger) swap(e *endpoints, taken uint64, nonce uint32) (old []*dataplane.Listener, addrs wire.AddrVec, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, nil, ErrShutdown
	}
	old, ok := m.listeners.Swap(e.groups, taken)
	if !ok {
		return nil, nil, fmt.Errorf("%w any more: Unbind came between", ErrNotBound)
	}
	for _, c := range m.sorted() {
		c.userDown.Store(true)
		c.over.Store(true)
		c.s.close(false, ErrRebound)
	}
	m.identity.renew(nonce)
	m.setBound(e)
	addrs = slices.Clone(m.addrs)
	m.mu.later(func() { m.cfg.Logger.Info("bound anew", "addrs", addrs) })
	return old, slices.Clone(addrs), nil
}
