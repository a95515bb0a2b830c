package session

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Event is what can happen to a session, with its facts: a [LifeEvent], or one of a
// protocol's own.
type Event any

// ownEvent is an event that msgr2 applies itself.
type ownEvent interface {
	apply(s *Session, r *Run)
}

// Events of a connection.
type (
	// Connect says that the user connects.
	Connect struct{}
	// Queued says that there is something to send.
	Queued struct{}
	// TimerFired says that run Run of the back-off timer is over. One that was
	// stopped may have fired already.
	TimerFired struct{ Run uint64 }
	// Lost says that the socket of the data phase is gone. Notification is the number
	// of the handler's notification, from 1. Useful: something was received or
	// acknowledged on it, or it lived for as long as the longest pause. Terminal:
	// dialling again would not help.
	Lost struct {
		Notification uint64
		IO           Snapshot
		Err          error
		Useful       bool
		Terminal     bool
	}
	// Failed says that an attempt has failed. Terminal: dialling again would not
	// help.
	Failed struct {
		Attempt  uint64
		Err      error
		Terminal bool
	}
	// Close ends the connection. Reset: the user is told; Replace: because a
	// newer connection of the peer takes the place of this lossy one.
	Close struct {
		Reset, Replace bool
		Err            error // why, nil for the last fault
	}
	// Freeze stops the session for a hand-over.
	Freeze struct{}
	// FrozenSnapshot brings the handler's snapshot while the session is stopped.
	FrozenSnapshot struct{ IO Snapshot }
	// Thaw lets it go on.
	Thaw struct{}
	// Restore brings a session of another process. It is stopped.
	Restore struct {
		ClientCookie, ServerCookie uint64
		PeerGlobalSeq, ConnectSeq  uint64
		ToldSeq                    uint64
		Features                   wire.Features
		IO                         Snapshot
	}
	// Loopback says that the connection is that to ourselves.
	Loopback struct{}
	// Readdressed says that our own addresses, which are the peer's on the
	// connection to ourselves, have changed.
	Readdressed struct{ Addrs wire.AddrVec }
)

// Events of an attempt, as Attempt numbers them. The handler of the connection
// stands still during an attempt.
type (
	// Authenticated says that the connector's socket is ready for the first frame
	// of the session, and that the handler has closed its last socket.
	Authenticated struct {
		Attempt uint64
		IO      Snapshot
	}
	// Answer is the peer's answer to the connector's frame.
	Answer struct {
		Attempt uint64
		Frame   Frame
	}
	// Suspended says that the attempt which the accepted socket interrupted has
	// ended, and that the handler has closed its last socket.
	Suspended struct {
		Attempt uint64
		IO      Snapshot
	}
	// HandlerMoved says that the handler is on the core of the socket.
	HandlerMoved struct{ Attempt uint64 }
	// Sent says that the acceptor's last frame has left.
	Sent struct{ Attempt uint64 }
)

// Events of an accepted socket, which is a session in state Accepting until it
// is decided which connection gets it.
type (
	// Accept says that the socket was accepted, and its peer authenticated.
	Accept struct{}
	// Request is a frame with which the peer opens or resumes a session.
	Request struct {
		Frame Frame
		// Existing is the connection that the frame is about (Meant), nil for none.
		// It is only read.
		Existing *Session
		// Near: the socket comes from the IP of the first address of the frame.
		Near bool
		// Settled: all handshakes that were under way when Existing got its
		// numbers from its peer have ended, so that this one is not older.
		Settled bool
		// Ours: the target of CLIENT_IDENT is an address of ours, though perhaps not
		// one of Env.Addrs, by which this peer has reached us.
		Ours bool
		// Ended: the session of that cookie is over (Ended).
		Ended bool
		// Frozen: sessions stand still for a hand-over, or have left by one.
		Frozen bool
		// Refuse is why no connection may be made, nil if one may.
		Refuse error
	}
	// SocketEnded says that the socket has ended, or has to, before it belonged to a
	// connection.
	SocketEnded struct{ Err error }
	// Replace has an accepted socket take the connection over (msgr2.md 9.7).
	Replace struct {
		Frame  Frame           // wire2.ClientIdent or wire2.SessionReconnect
		Reset  bool            // the session is reset first
		Entity wire.EntityName // who the peer is
		Proven bool            // it has proven that
	}
)

// Frame is one session frame: of msgr2 a decoded payload of package wire, a
// [WaitFrame], or an [OtherFrame]; of another protocol what that makes of it, with a
// String.
type Frame any

// WaitFrame is WAIT, which has no payload.
type WaitFrame struct{}

// OtherFrame is any frame that has no place in a session handshake.
type OtherFrame struct{ Name string }

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
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("frame(%d)", uint8(k))
}

// KindOf is the kind of a frame, KindNone for one that has no place here.
func KindOf(f Frame) Kind {
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

// frameName names a frame in errors.
func frameName(f Frame) string {
	switch f := f.(type) {
	case OtherFrame:
		return f.Name
	case fmt.Stringer: // of another protocol
		return f.String()
	}
	return KindOf(f).String()
}
