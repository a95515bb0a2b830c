package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
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
// and for another Rebind. A messenger that Unbind has silenced listens again.
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
	at, ports := m.elsewhere(avoid)
	before := m.unbinds
	m.mu.Unlock()
	if at == nil {
		return nil, fmt.Errorf("rebind: %w", ErrNotBound)
	}
	e, err := m.listenAll(ctx, at, func(wire.Addr) portChoice { return ports })
	if err != nil {
		return nil, fmt.Errorf("rebind: %w", err)
	}
	old, addrs, err := m.swap(e, before)
	if err != nil {
		e.close()
		return nil, fmt.Errorf("rebind: %w", err)
	}
	closeListeners(old)
	return addrs, nil
}

// elsewhere is where to listen instead of now: nil if we are not bound. The lock
// is held.
func (m *Messenger) elsewhere(avoid []uint16) (at []wire.Addr, ports portChoice) {
	if !m.bound {
		return nil, ports
	}
	ports = portChoice{from: m.cfg.BindPorts, avoid: make(map[uint16]bool)}
	for _, p := range avoid {
		ports.avoid[p] = true
	}
	places := m.places
	for i, a := range m.addrs {
		ports.avoid[a.AddrPort.Port()] = true
		if len(m.places) != len(m.addrs) { // by a hand-over
			places = append(places[:i:i], a.AddrPort.Addr())
		}
	}
	for _, ip := range places {
		at = append(at, wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(ip, 0)})
	}
	return at, ports
}

// swap is the moment at which the new address takes the place of the old one. It
// returns the listeners of that, to be closed.
func (m *Messenger) swap(e *endpoints, unbinds uint64) (old []*dataplane.Listener, addrs wire.AddrVec, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, nil, ErrShutdown
	}
	if m.unbinds != unbinds {
		return nil, nil, fmt.Errorf("%w any more: Unbind came between", ErrNotBound)
	}
	old = m.listeners
	for _, c := range m.sorted() {
		c.userDown.Store(true)
		c.over.Store(true)
		c.close(false, ErrRebound)
	}
	m.nonce = m.otherNonce()
	m.settle(e)
	m.steerAgain(e.groups)
	m.cfg.Logger.Info("bound anew", "addrs", m.addrs)
	return old, slices.Clone(m.addrs), nil
}

// otherNonce is a nonce that is not the present one. The lock is held.
func (m *Messenger) otherNonce() uint32 {
	n := uint32(m.random64())
	if n == m.nonce {
		n++
	}
	return n
}

// steerAgain has the listeners of other addresses steered as those before. The
// lock is held.
func (m *Messenger) steerAgain(groups [][]*dataplane.Listener) {
	s := m.steer
	switch {
	case s == nil || s.closed: // by Unbind
		m.steer = m.newSteering()
		m.steer.take(m, groups)
		m.report(m.steer)
	case s.active():
		if s.follow(groups); s.err != nil {
			m.report(s)
		}
	}
}

// take begins to steer the listeners of all addresses.
func (s *steering) take(m *Messenger, groups [][]*dataplane.Listener) {
	for _, group := range groups {
		s.begin(m.load, m.cfg.SteerTable, group[0].Addr(), group[0].FD())
		for _, l := range group {
			s.add(l.Core().ID(), l.FD())
		}
	}
}

// follow has the programs steer the listeners of other addresses, one for one:
// their tables and counters go along.
func (s *steering) follow(groups [][]*dataplane.Listener) {
	for i, g := range s.groups {
		if s.err != nil {
			return
		}
		g.addr = groups[i][0].Addr()
		err := g.prog.Attach(groups[i][0].FD())
		for _, l := range groups[i] {
			if err == nil {
				err = g.prog.Add(l.Core().ID(), l.FD())
			}
		}
		s.fail(err)
	}
}
