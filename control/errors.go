package control

import (
	"fmt"
	"net"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Errors of the messenger and its connections. Those of a connection that is
// over wrap net.ErrClosed as well.
var (
	// ErrConfig: a setting is wrong.
	ErrConfig = sessions.ErrConfig
	// ErrShutdown: the messenger is shut down.
	ErrShutdown = sessions.ErrShutdown
	// ErrClosed: the connection is over.
	ErrClosed = fmt.Errorf("control: connection closed: %w", net.ErrClosed)
	// errLossyOver is ErrClosed for a connection that we dialled and that a fault has ended.
	errLossyOver = fmt.Errorf("%w: a lossy connection does not come back, Connect makes another one", ErrClosed)
	// ErrMarkedDown: the user closed the connection.
	ErrMarkedDown = sessions.ErrMarkedDown
	// ErrReplaced: a newer connection of the same peer took the place of a
	// lossy one.
	ErrReplaced = sessions.ErrReplaced
	// ErrQueueFull: the sending queue is at its bound.
	ErrQueueFull = dataplane.ErrQueueFull
	// ErrTooLarge: a message has more payload than dataplane.MaxMessage, 2 GiB.
	ErrTooLarge = dataplane.ErrTooLarge
	// ErrInUse: the message is in a queue already.
	ErrInUse = dataplane.ErrInUse
	// ErrProtocol: the peer broke the session protocol.
	ErrProtocol = session.ErrProtocol
	// ErrWrongPeer: the peer is not the one that was dialled.
	ErrWrongPeer = session.ErrWrongPeer
	// ErrPeerType: the peer is of another type of entity than the one to reach.
	ErrPeerType = handshake.ErrPeerType
	// ErrMissingFeatures: one side requires features that the other lacks.
	ErrMissingFeatures = session.ErrMissingFeatures
	// ErrAuth: the peer and we did not authenticate each other, as opposed to a
	// network that failed: we or it were refused, there is no method, mode or
	// ticket to use, a proof or a signature is wrong.
	ErrAuth = handshake.ErrAuth
	// ErrGaveUp: the auth client has nothing more to offer.
	ErrGaveUp = handshake.ErrGaveUp
	// ErrHandshakeTimeout: the peer did not complete the handshake in time. It
	// wraps os.ErrDeadlineExceeded.
	ErrHandshakeTimeout = sessions.ErrHandshakeTimeout
	// ErrHandedOver: the connection, or the messenger, belongs to another process
	// now, or is about to.
	ErrHandedOver = sessions.ErrHandedOver
	// ErrHandOver is wrapped by the errors of a hand-over that failed.
	ErrHandOver = handover.ErrHandOver
	// ErrNoPort: no port is free to listen on. It names the ports that were tried,
	// and wraps what the kernel said of the last one.
	ErrNoPort = binding.ErrNoPort
	// ErrRebound is why connections are over that a Rebind marked down. It wraps
	// ErrMarkedDown.
	ErrRebound = sessions.ErrRebound
	// ErrExpired is why a connection is over whose peer did not come back in time.
	ErrExpired = sessions.ErrExpired
	// ErrUnanswered: Policy.GiveUpAfter has passed. It comes with the error of the last attempt.
	ErrUnanswered = sessions.ErrUnanswered
	// ErrStuck: the attempts of a connection fail one after the other in a way that
	// dialling again does not mend. The *Error of the last one is wrapped, whose Advice
	// says what to look at. The connection goes on dialling until MarkDown.
	ErrStuck = sessions.ErrStuck
	// ErrElsewhere is wrapped by the error of a connection that a peer made, and that
	// Connect returned because the peer said that it had the address: whoever is at the
	// address does not know it. Connect again: the address is dialled.
	ErrElsewhere = session.ErrElsewhere
)

// State is the state of a connection (Ceph's ProtocolV2.cc). Package session has the
// table of the transitions.
type State = session.State

// The states of connections that a user sees, in the order of the protocol text.
const (
	StateEstablishing = session.Establishing // new session decided, SERVER_IDENT being sent
	StateConnecting   = session.Connecting   // from dialling to the peer's answer
	StateReady        = session.Ready        // data phase
	StateStandby      = session.Standby      // no socket, nothing to do
	StateWait         = session.Wait         // back-off timer running
	StateReplacing    = session.Replacing    // taking over an accepted socket
	StateClosing      = session.Closing      // over
)

// Stage says how far a connection attempt came.
type Stage = stats.Stage

// The stages.
const (
	StageConnect   = stats.StageConnect
	StageBanner    = stats.StageBanner
	StageHello     = stats.StageHello
	StageAuth      = stats.StageAuth
	StageIdent     = stats.StageIdent
	StageSession   = stats.StageSession
	StageKeepalive = stats.StageKeepalive
)

// Error is a failed connection attempt or a fault of a session. Its Advice is what to look
// at first.
type Error = stats.Error

// StageOf is the stage at which err happened, empty if it does not say.
func StageOf(err error) Stage { return stats.StageOf(err) }

// Msgr1 is Info.Protocol of a connection in msgr1.
const Msgr1 = sessions.Msgr1
