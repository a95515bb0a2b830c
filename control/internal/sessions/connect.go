package sessions

import (
	"cmp"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// ConnectOptions say how Connect makes a connection. The zero value does for most.
type ConnectOptions struct {
	Anonymous bool            // not found by its address
	Once      bool            // ends with the first attempt that fails
	Core      *int            // that owns it; nil: the core with the fewest connections
	Policy    *Policy         // nil: that of the type of the peer
	Entity    wire.EntityName // the wanted peer; zero: any of the type
}

// Connect returns the connection to a peer: the one that exists for that address, or a new
// one, which begins to dial. See control.Manager.Connect. It is the one method that a
// core may call and that takes the lock.
func (m *Manager) Connect(to wire.Addr, peer wire.EntityType, o *ConnectOptions) (*Conn, error) {
	if c, err := m.connected(to, peer, o); c != nil || err != nil {
		return c, err
	}
	numbers, now := m.drawNumbers(), m.cfg.Clock.Now()
	m.lockAnywhere()
	defer m.unlock()
	if m.down {
		return nil, ErrShutdown
	}
	if !m.started {
		return nil, fmt.Errorf("%w: Connect before Start", ErrConfig)
	}
	if !mayBeServed(to) || to.IsBlank() || to.AddrPort.Port() == 0 {
		return nil, fmt.Errorf("%w: cannot connect to %v: want v2:IP:PORT/NONCE or v1:IP:PORT/NONCE", ErrConfig, to)
	}
	if err := protocolAt(to).allowed(&m.cfg); err != nil {
		return nil, err
	}
	if o.Entity != (wire.EntityName{}) && o.Entity.Type != peer {
		return nil, fmt.Errorf("%w: %v is no %v", ErrConfig, o.Entity, peer)
	}
	if m.addrs.Contains(to) {
		if cmp.Or(o.Entity, m.cfg.Name) != m.cfg.Name {
			return nil, fmt.Errorf("%w: %v is our own address, not that of %v", session.ErrWrongPeer, to, o.Entity)
		}
		return m.loopbackLocked(), nil
	}
	if !o.Anonymous {
		c, claimed, err := m.names.to(to, peer, o.Entity)
		if err != nil {
			return nil, err
		}
		if c != nil {
			if claimed {
				checkClaimLocked(c, now)
			}
			return c, nil
		}
	}
	policy := m.policies.get(peer)
	if o.Policy != nil {
		policy = o.Policy
	}
	if !policy.Lossy && m.handing.Frozen() {
		return nil, ErrHandedOver
	}
	if policy.Server {
		return nil, fmt.Errorf("%w: policy %s does not dial", ErrConfig, policy.Name)
	}
	if o.Anonymous && m.bound && policy.Standby {
		return nil, fmt.Errorf("%w: an anonymous connection cannot have policy %s: the peer may dial back, and would not find it", ErrConfig, policy.Name)
	}
	core, by, err := m.placeLocked(o)
	if err != nil {
		return nil, err
	}
	ns := m.newSession(policy, session.Peer{
		Target: to, Dialled: true, Anonymous: o.Anonymous, Addrs: wire.AddrVec{to}, Type: peer, Entity: o.Entity,
	})
	ns.Once = o.Once
	c := m.newConnLocked(core, policy, ns, false)
	c.shown.place = stats.Placement{Core: core.ID(), Intended: core.ID(), By: by}
	if !o.Anonymous {
		m.names.addLocked(to, c)
	}
	c.s.stepWithLocked(session.Connect{}, numbers)
	return c, nil
}

// connected is the connection to a peer that exists already, nil for none that needs
// no check. It takes no lock. Any goroutine, a core's too.
func (m *Manager) connected(to wire.Addr, peer wire.EntityType, o *ConnectOptions) (*Conn, error) {
	switch {
	case o.Anonymous, o.Entity != (wire.EntityName{}) && o.Entity.Type != peer:
		return nil, nil
	case m.isOurs(to):
		if c := m.names.found(to); c != nil && c.local && cmp.Or(o.Entity, m.cfg.Name) == m.cfg.Name {
			return c, nil
		}
		return nil, nil
	}
	c, claimed, err := m.names.to(to, peer, o.Entity)
	if claimed {
		return nil, nil
	}
	return c, err
}

// isOurs says whether the address is one of Addrs. It takes no lock.
func (m *Manager) isOurs(a wire.Addr) bool {
	addrs := m.shown.Load()
	return addrs != nil && addrs.Contains(a)
}

// Loopback is the connection to ourselves; see control.Messenger.Loopback.
func (m *Manager) Loopback() (*Conn, error) {
	m.lock()
	defer m.unlock()
	if m.down {
		return nil, ErrShutdown
	}
	if !m.started {
		return nil, fmt.Errorf("%w: Loopback before Start", ErrConfig)
	}
	return m.loopbackLocked(), nil
}

// loopbackLocked is the connection to ourselves.
func (m *Manager) loopbackLocked() *Conn {
	if m.local != nil {
		return m.local
	}
	policy := m.policies.get(m.cfg.Name.Type)
	c := m.newConnLocked(m.pickCore(), policy, m.newSession(policy, session.Peer{Type: m.cfg.Name.Type, Entity: m.cfg.Name}), true)
	c.s.stepLocked(session.Loopback{})
	m.local = c
	m.registerLocked(c)
	return c
}

// registerLocked makes the connection to ourselves findable by our address, if we have one
// that peers could dial.
func (m *Manager) registerLocked(c *Conn) {
	c.s.stepLocked(session.Readdressed{Addrs: m.addrs})
	if to := c.s.Peer.Target; !to.IsBlank() {
		m.names.addLocked(to, c)
	}
}

// findLocalLocked makes the connection to ourselves findable by the addresses that we have
// now.
func (m *Manager) findLocalLocked() {
	if c := m.local; c != nil {
		m.names.forgetLocked(c)
		m.registerLocked(c)
	}
}
