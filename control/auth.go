package control

import (
	"github.com/ringmsgr/ringmsgr/control/auth"
)

// authPair authenticates the connections that we make and accept.
type authPair struct {
	client auth.Client
	server auth.Server
}

// SetAuth replaces what authenticates the connections that we make and accept,
// such as after a change of the configuration from one method to another. Nil
// leaves that side as it is.
//
// Every handshake that begins from now on uses the new ones, reconnects of
// existing sessions included; those that are under way, and TCP connections that
// are authenticated, keep what they have. Close those that may not stay.
// Config.Modes goes on to hold: a messenger that requires secure mode refuses
// everybody under a method without keys.
func (m *Messenger) SetAuth(client auth.Client, server auth.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := *m.auth.Load()
	if client != nil {
		now.client = client
	}
	if server != nil {
		now.server = server
	}
	m.auth.Store(&now)
}
