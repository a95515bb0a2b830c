package control

import (
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/session1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// machine is the session of a connection, or of an accepted socket, in the protocol
// that it speaks: one of msgr2 and msgr1 is there. Both have the Lifecycle. The
// messenger's lock guards it.
type machine struct {
	*session.Lifecycle
	msgr2 *session.Session
	msgr1 *session1.Session
}

// advance is the Step of the protocol.
func (s *machine) advance(ev session.Event, env session.Env) []session.Action {
	if s.msgr1 != nil {
		return s.msgr1.Advance(ev, env)
	}
	return s.msgr2.Advance(ev, env)
}

// peerText names the peer in errors and logs.
func (s *machine) peerText() string { return peerText(s.Peer.Target, s.Peer.Addrs) }

func peerText(target wire.Addr, addrs wire.AddrVec) string {
	if !target.IsBlank() {
		return target.String()
	}
	return addrs.String()
}

// snapshot converts what a handler says to the form of the machine.
func snapshot(m dataplane.Snapshot) session.Snapshot {
	return session.Snapshot{InSeq: m.InSeq, OutSeq: m.OutSeq, Queued: m.Queued, Sent: m.Sent, Notifications: m.Notifications}
}

// asks says whether there is something to ask who is at the address that the peer says it
// has. msgr1 has no such question. The lock is held.
func (s *machine) asks() bool {
	if s.msgr2 == nil {
		return false
	}
	_, ok := s.msgr2.Question(nil)
	return ok
}

// movingToSocket says that an attempt has a socket for the connection, or is about
// to, and brings the handler to that socket's core. The lock is held.
func (s *machine) movingToSocket() bool {
	switch s.State {
	case StateAccepting, StateEstablishing, StateConnecting, StateReplacing:
		return true
	}
	return false
}

// isMsgr1 says whether an address is one at which msgr1 is spoken. Every other one
// is for msgr2.
func isMsgr1(a wire.Addr) bool { return a.Type == wire.AddrLegacy }

// newSession is the session of a connection, in the protocol of the address that it
// goes by, or of an accepted socket of msgr2, which has none yet.
func (m *Messenger) newSession(p *Policy, peer session.Peer) machine {
	if isMsgr1(peer.Target) {
		return m.newSession1(p, peer)
	}
	s := session.New(p.rules(), peer, m.backoff())
	return machine{Lifecycle: &s.Lifecycle, msgr2: &s}
}

// newSession1 is a session of msgr1.
func (m *Messenger) newSession1(p *Policy, peer session.Peer) machine {
	s := session1.New(m.cfg.Name.Type, p.rules1(), peer, m.backoff())
	return machine{Lifecycle: &s.Lifecycle, msgr1: &s}
}

func (m *Messenger) backoff() session.Backoff {
	return session.Backoff{Initial: m.cfg.InitialBackoff, Max: m.cfg.MaxBackoff}
}
