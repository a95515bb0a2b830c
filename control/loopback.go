package control

import "fmt"

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
	c := m.newConn(m.pickCore(), m.policyFor(m.cfg.Name.Type))
	c.local, c.userKnows = true, true
	c.peerType, c.peerEntity, c.state = m.cfg.Name.Type, m.cfg.Name, StateReady
	m.local = c
	m.register(c)
	return c
}

// register makes the connection to ourselves findable by our address, if we have
// one that peers could dial. The lock is held.
func (m *Messenger) register(c *Conn) {
	c.target, c.peerAddrs = m.addrs.V2(), m.addrs
	if !c.target.IsBlank() {
		m.conns[c.target] = c
	}
}
