package control

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/session"
)

// Loopback is the connection to ourselves: what is sent on it comes to our own
// dispatchers, without a socket, in order, on a goroutine of the connection. It
// exists once, is ready at once, needs no Bind, and is what Connect returns for
// our own address. It has no events. After MarkDown the next call makes a new
// one.
func (m *Messenger) Loopback() (*Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, ErrShutdown
	}
	if !m.started {
		return nil, fmt.Errorf("%w: Loopback before Start", ErrConfig)
	}
	return m.loopback(), nil
}

// IsLoopback says whether this is the connection to ourselves.
func (c *Conn) IsLoopback() bool { return c.local }

// loopback is the connection to ourselves. The lock is held.
func (m *Messenger) loopback() *Conn {
	if m.local != nil {
		return m.local
	}
	policy := m.policies.get(m.cfg.Name.Type)
	c := m.newConn(m.pickCore(), policy, m.newSession(policy, session.Peer{Type: m.cfg.Name.Type, Entity: m.cfg.Name}))
	c.local = true
	c.s.step(session.Loopback{})
	m.local = c
	m.register(c)
	return c
}

// register makes the connection to ourselves findable by our address, if we have
// one that peers could dial. The lock is held.
func (m *Messenger) register(c *Conn) {
	c.s.step(session.Readdressed{Addrs: m.addrs})
	if to := c.s.Peer.Target; !to.IsBlank() {
		m.names.add(to, c)
	}
}

// findLocal makes the connection to ourselves findable by the addresses that we
// have now. The lock is held.
func (m *Messenger) findLocal() {
	if c := m.local; c != nil {
		m.names.forget(c)
		m.register(c)
	}
}
