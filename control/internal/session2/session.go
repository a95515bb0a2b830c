package session2

import (
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Session is the protocol of one msgr2 connection (Ceph's ProtocolV2.cc), or of an
// accepted socket that is not a connection yet. Its owner guards it.
type Session struct {
	session.Lifecycle

	ClientCookie uint64
	ServerCookie uint64
	ToldSeq      uint64 // our global_seq in the SERVER_IDENT that opened the session, 0 if the peer sent that

	asked   Kind     // connector: the frame that waits for its answer
	due     Kind     // accepted socket: the frame that must come next, 0: any
	claimed *claimed // acceptor: the peer's fields, until the answer
}

// claimed are the fields in the frame of an accepted socket. They never change.
type claimed struct {
	front  wire.Addr // of the peer, until a connection is made
	target wire.Addr // from then on: ours by which the peer of CLIENT_IDENT has reached us
}

// New makes a session in state None.
func New(p session.Policy, peer session.Peer, b session.Backoff) Session {
	return Session{Lifecycle: session.NewLifecycle(p, peer, b)}
}

// Resumable says whether there is a session to resume on another socket. A lossy one has no server
// cookie.
func (s *Session) Resumable() bool { return s.ServerCookie != 0 }

// Version implements session.Protocol.
func (*Session) Version() int { return 2 }

// Begin implements session.Protocol.
func (s *Session) Begin(r *session.Run, t session.Trigger) {
	if t == session.OnConnect {
		// The sharded rule: made with the object, whatever the policy.
		s.ClientCookie = r.Env.Cookie()
	}
	if s.Resumable() {
		s.ConnectSeq++
	}
}

// Leave implements session.Protocol.
func (s *Session) Leave(r *session.Run) {
	if s.Resumable() {
		r.Do(session.Remember{Name: session.Name{Peer: s.Peer.Addrs.Front(), Cookie: s.ClientCookie}, PeerGlobalSeq: s.PeerGlobalSeq})
	}
}

// Address implements session.Protocol.
func (*Session) Address(v wire.AddrVec) wire.Addr { return v.V2() }

// Names implements session.Protocol.
func (s *Session) Names(cookie uint64) bool { return s.ClientCookie == cookie }

// Record implements session.Protocol.
func (s *Session) Record() session.Record {
	return session.Record{ClientCookie: s.ClientCookie, ServerCookie: s.ServerCookie, ToldSeq: s.ToldSeq}
}

// Recall implements session.Protocol.
func (s *Session) Recall(r session.Record) {
	s.ClientCookie, s.ServerCookie, s.ToldSeq = r.ClientCookie, r.ServerCookie, r.ToldSeq
}

// WaitFrame is WAIT, which has no payload. All other frames of a session are decoded payloads
// of package wire, or a session.OtherFrame.
type WaitFrame struct{}

// Kind is a kind of session frame.
type Kind uint8

// The session frames of msgr2.
const (
	KindNone Kind = iota
	KindClientIdent
	KindServerIdent
	KindMissingFeatures
	KindReconnect
	KindReconnectOK
	KindRetry
	KindRetryGlobal
	KindReset
	KindWait
)

var kindNames = [...]string{
	"none", "CLIENT_IDENT", "SERVER_IDENT", "IDENT_MISSING_FEATURES", "SESSION_RECONNECT", "SESSION_RECONNECT_OK",
	"SESSION_RETRY", "SESSION_RETRY_GLOBAL", "SESSION_RESET", "WAIT",
}

// String is the name in the protocol text.
func (k Kind) String() string { return kindNames[k] }

// KindOf is the kind of a frame, KindNone for one that has no place here.
func KindOf(f session.Frame) Kind {
	switch f.(type) {
	case wire2.ClientIdent:
		return KindClientIdent
	case wire2.ServerIdent:
		return KindServerIdent
	case wire2.IdentMissingFeatures:
		return KindMissingFeatures
	case wire2.SessionReconnect:
		return KindReconnect
	case wire2.SessionReconnectOK:
		return KindReconnectOK
	case wire2.SessionRetry:
		return KindRetry
	case wire2.SessionRetryGlobal:
		return KindRetryGlobal
	case wire2.SessionReset:
		return KindReset
	case WaitFrame:
		return KindWait
	}
	return KindNone
}

// Opens says that f is a frame of an acceptor after which the connection is open.
func Opens(f session.Frame) bool {
	k := KindOf(f)
	return k == KindServerIdent || k == KindReconnectOK
}

// frameName names a frame in errors.
func frameName(f session.Frame) string {
	if f, ok := f.(session.OtherFrame); ok {
		return f.Name
	}
	return KindOf(f).String()
}
