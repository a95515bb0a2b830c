package control

import (
	"errors"
	"fmt"
	"net"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Errors of the messenger and its connections. Where a connection is over Send fails with one
// that wraps net.ErrClosed, and Conn.Err has the reason.
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
	// ErrTooLarge: the payload exceeds dataplane.MaxMessage, 2 GiB.
	ErrTooLarge = dataplane.ErrTooLarge
	// ErrInUse: the message is in a queue already.
	ErrInUse = dataplane.ErrInUse
	// ErrWrongPeer: the peer is not the dialled one.
	ErrWrongPeer = session.ErrWrongPeer
	// ErrPeerType: the peer has another type of entity than the wanted one.
	ErrPeerType = handshake.ErrPeerType
	// ErrMissingFeatures: one side requires features that the other lacks.
	ErrMissingFeatures = session.ErrMissingFeatures
	// ErrAuth: the authentication failed, not the network: one side was refused, there is no
	// common method or mode, no ticket, or a proof or signature is wrong.
	ErrAuth = handshake.ErrAuth
	// ErrGaveUp: the auth client has no further method to offer.
	ErrGaveUp = handshake.ErrGaveUp
	// ErrHandshakeTimeout: the handshake took too long. It wraps os.ErrDeadlineExceeded.
	ErrHandshakeTimeout = sessions.ErrHandshakeTimeout
	// ErrHandedOver: the connection, or the messenger, belongs to another process now, or soon.
	ErrHandedOver = sessions.ErrHandedOver
	// ErrHandOver is wrapped by the errors of a hand-over that failed.
	ErrHandOver = handover.ErrHandOver
	// ErrNoPort: no port is free. It names the tried ports, and wraps the kernel's last error.
	ErrNoPort = binding.ErrNoPort
	// ErrRebound: a Rebind ended the connection. It wraps ErrMarkedDown.
	ErrRebound = sessions.ErrRebound
	// ErrExpired: the peer did not come back in time.
	ErrExpired = sessions.ErrExpired
	// ErrUnanswered: Policy.GiveUpAfter has passed. It comes with the error of the last
	// attempt.
	ErrUnanswered = sessions.ErrUnanswered
	// ErrStuck: the attempts of a connection fail in a way that dialling again does not mend.
	// It wraps the last *Error, whose Advice names the remedy. The connection goes on dialling
	// until MarkDown.
	ErrStuck = sessions.ErrStuck
	// ErrElsewhere: Connect returned a connection of a peer that claimed the address, and the
	// process at the address does not know the session. The next Connect dials.
	ErrElsewhere = session.ErrElsewhere
	// ErrUndelivered: a drained connection has ended, or cannot reconnect, before all messages
	// were delivered.
	ErrUndelivered = dataplane.ErrUndelivered
	// ErrTooManyPostings: Config.Receiving.Postings are posted on the connection.
	ErrTooManyPostings = errors.New("control: too many postings on the connection")
	// ErrUnsteered: no steering table is in force.
	ErrUnsteered = steering.ErrUnsteered
	// ErrStats is wrapped by the errors of a statistics socket.
	ErrStats = errors.New("control: statistics socket")
)

// State is the state of a connection (Ceph's ProtocolV2.cc).
type State = session.State

// The states that a user sees, in the order of the protocol text.
const (
	StateEstablishing = session.Establishing // new session decided, SERVER_IDENT being sent
	StateConnecting   = session.Connecting   // from dialling to the peer's answer
	StateReady        = session.Ready        // data phase
	StateStandby      = session.Standby      // no socket, and no work
	StateWait         = session.Wait         // back-off timer running
	StateReplacing    = session.Replacing    // taking over an accepted socket
	StateClosing      = session.Closing      // over
)

// Stage is the last stage of a connection attempt.
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

// Error is a failed connection attempt or a fault of a session. Its Advice names the remedy; go doc
// control/internal/stats.Error has its fields and methods.
type Error = stats.Error

// Msgr1 is Info.Protocol of a connection in msgr1.
const Msgr1 = sessions.Msgr1
