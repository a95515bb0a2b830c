package control

import (
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Bind listens on addresses, each on every core, and returns them with their
// ports. A port of 0 lets the kernel choose one. If one of them cannot be
// bound, none is, and the messenger stays usable. A messenger that never binds
// is a client only.
func (m *Messenger) Bind(addrs ...wire.Addr) (wire.AddrVec, error) {
	m.mu.Lock()
	switch {
	case m.down:
		m.mu.Unlock()
		return nil, ErrShutdown
	case m.bound:
		m.mu.Unlock()
		return nil, fmt.Errorf("%w: bound twice", ErrConfig)
	}
	m.bound = true
	m.mu.Unlock()

	var listeners []*dataplane.Listener
	var vec wire.AddrVec
	steer := m.newSteering()
	for _, a := range addrs {
		ls, bound, err := m.listen(a, steer)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			m.mu.Lock()
			steer.close()
			m.bound = false
			m.mu.Unlock()
			return nil, err
		}
		listeners = append(listeners, ls...)
		vec = append(vec, bound)
	}
	m.report(steer)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners, m.addrs, m.steer = listeners, vec, steer
	if m.down {
		steer.close() // Shutdown has not seen it
	}
	if m.globalSeq == 0 && m.cfg.Nonce != nil {
		// With a fixed nonce a restart has the address of its predecessor, and
		// peers remember the numbers of that one: begin above them.
		m.globalSeq = uint64(m.cfg.Clock.Now().UnixMilli())
	}
	return append(wire.AddrVec(nil), vec...), nil
}

// listen puts a listener for a on every core, as one SO_REUSEPORT group.
func (m *Messenger) listen(a wire.Addr, steer *steering) ([]*dataplane.Listener, wire.Addr, error) {
	if a.Type != wire.AddrMsgr2 {
		return nil, a, fmt.Errorf("%w: cannot listen on %v: only v2 addresses are spoken", ErrConfig, a)
	}
	if !a.AddrPort.IsValid() {
		return nil, a, fmt.Errorf("%w: cannot listen on %v: no address", ErrConfig, a)
	}
	at := a.AddrPort
	var ls []*dataplane.Listener
	for i := range m.plane.Cores() {
		// The first one alone: a port that another process holds must be an
		// error, not a group with it.
		opt := uring.ListenOptions{ReusePort: m.plane.Cores() > 1}
		if i == 0 {
			if err := m.probe(at); err != nil {
				return nil, a, fmt.Errorf("bind %v: %w", a, err)
			}
		}
		l, err := m.plane.Core(i).Listen(at, opt, m.accepted)
		if err != nil {
			for _, l := range ls {
				_ = l.Close()
			}
			return nil, a, fmt.Errorf("bind %v: %w", a, err)
		}
		at = l.Addr()
		ls = append(ls, l)
		if i == 0 {
			steer.begin(m.load, m.cfg.SteerTable, at, l.FD())
		}
		steer.add(i, l.FD())
	}
	a.AddrPort, a.Nonce = at, m.nonce
	return ls, a, nil
}

// probe checks that nobody else listens on a fixed port, which joining a
// SO_REUSEPORT group would hide.
func (m *Messenger) probe(at netip.AddrPort) error {
	if at.Port() == 0 || m.plane.Cores() == 1 {
		return nil
	}
	l, err := m.plane.Core(0).Listen(at, uring.ListenOptions{}, func(l *dataplane.Link) { go l.Close() })
	if err != nil {
		return err
	}
	return l.Close()
}

// loopback is the connection to ourselves. The lock is held.
func (m *Messenger) loopback() *Conn {
	self := m.addrs.V2()
	if c := m.conns[self]; c != nil {
		return c
	}
	c := m.newConn(m.pickCore(), m.policyFor(m.cfg.Name.Type))
	c.local, c.userKnows = true, true
	c.target, c.peerType, c.peerAddrs = self, m.cfg.Name.Type, m.addrs
	c.peerEntity, c.state = m.cfg.Name, StateReady
	m.conns[self] = c
	return c
}
