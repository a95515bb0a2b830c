package sessions

import (
	"context"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// protocol are the actions of the Manager that differ between msgr2 (msgr2.go) and msgr1
// (msgr1.go). The values have no state.
type protocol interface {
	// allowed is the reason why the configuration excludes the protocol; nil: it does not.
	allowed(c *Config) error
	// session makes a session.
	session(m *Manager, p *Policy, peer session.Peer) session.Protocol
	// seqLocked counts our attempts.
	seqLocked(m *Manager) *session.GlobalSeq
	// connect runs the handshake on the socket of an attempt of ours, up to the session.
	connect(d *dialling) error
	// accept runs the handshake on an accepted socket, up to the session.
	accept(a *accepting) error
	// alias is another address of the peer, by which a socket from there finds its session; blank if
	// there is none.
	alias(peer *session.Peer) wire.Addr
}

// protocolAt is the protocol that is spoken at an address.
func protocolAt(a wire.Addr) protocol {
	if a.Type == wire.AddrLegacy {
		return msgr1{}
	}
	return msgr2{}
}

// mayBeServed says whether an address has a protocol.
func mayBeServed(a wire.Addr) bool { return a.Type == wire.AddrMsgr2 || a.Type == wire.AddrLegacy }

// talk is a handshake that has come to the session. The goroutine of the attempt uses it until
// the connection is open.
type talk interface {
	// send sends a frame of the machine.
	send(ctx context.Context, f session.Frame) error
	// receive returns the peer's next frame.
	receive(ctx context.Context) (session.Frame, error)
	// sender identifies the sender of a frame on an accepted socket.
	sender(f session.Frame) session.Sender
	// last says that f, after which the connection is open, has no answer.
	last(f session.Frame) bool
	// queues says that send does not wait.
	queues() bool
	// protocol is the name in statistics.
	protocol() string
	// Wipe overwrites the secrets of a handshake that has failed.
	Wipe()
	// codec gives up the encoder and the decoder, for a connection with these features.
	codec(features wire.Features) (dataplane.Codec, error)
}

// machine is the session of a connection, or of an accepted socket. The messenger's lock guards
// it.
type machine struct {
	*session.Lifecycle // of rules; nil: there is no session yet
	rules              session.Protocol
}

// protocols are by the version of the rules.
var protocols = [...]protocol{1: msgr1{}, 2: msgr2{}}

// speaks is the protocol of the session.
func (s *machine) speaks() protocol { return protocols[s.rules.Version()] }

// newSession is the session of a connection, in the protocol of the address that it goes by.
func (m *Manager) newSession(p *Policy, peer session.Peer) machine {
	return m.newSessionOf(protocolAt(peer.Target), p, peer)
}

// newSessionOf is newSession for an accepted socket, which has no address yet.
func (m *Manager) newSessionOf(speaks protocol, p *Policy, peer session.Peer) machine {
	rules := speaks.session(m, p, peer)
	return machine{rules.Life(), rules}
}

// peerText names the peer in errors and logs.
func (s *machine) peerText() string { return peerText(s.Peer.Target, s.Peer.Addrs) }

func peerText(target wire.Addr, addrs wire.AddrVec) string {
	if !target.IsBlank() {
		return target.String()
	}
	return addrs.String()
}

// snapshot converts the snapshot of a handler to the form of the machine.
func snapshot(m dataplane.Snapshot) session.Snapshot {
	return session.Snapshot{InSeq: m.InSeq, OutSeq: m.OutSeq, Queued: m.Queued, Sent: m.Sent, Notifications: m.Notifications}
}
