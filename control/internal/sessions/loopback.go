package sessions

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
)

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
