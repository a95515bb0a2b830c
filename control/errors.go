package control

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Errors of the messenger and its connections. Those of a connection that is
// over wrap net.ErrClosed as well.
var (
	// ErrConfig: a setting is wrong.
	ErrConfig = errors.New("control: invalid configuration")
	// ErrShutdown: the messenger is shut down.
	ErrShutdown = fmt.Errorf("control: messenger shut down: %w", net.ErrClosed)
	// ErrClosed: the connection is over.
	ErrClosed = fmt.Errorf("control: connection closed: %w", net.ErrClosed)
	// ErrMarkedDown: the user closed the connection.
	ErrMarkedDown = fmt.Errorf("control: marked down: %w", net.ErrClosed)
	// ErrReplaced: a newer connection of the same peer took the place of a
	// lossy one.
	ErrReplaced = fmt.Errorf("control: replaced by a newer connection: %w", net.ErrClosed)
	// ErrQueueFull: the sending queue is at its bound.
	ErrQueueFull = dataplane.ErrQueueFull
	// ErrTooLarge: a message has more payload than dataplane.MaxMessage, 2 GiB.
	ErrTooLarge = dataplane.ErrTooLarge
	// ErrInUse: the message is in a queue already.
	ErrInUse = dataplane.ErrInUse
	// ErrOnCore: a call that waits was made on a core. Nothing was done.
	ErrOnCore = dataplane.ErrOnCore
	// ErrProtocol: the peer broke the session protocol.
	ErrProtocol = session.ErrProtocol
	// ErrWrongPeer: the peer is not the one that was dialled.
	ErrWrongPeer = session.ErrWrongPeer
	// ErrMissingFeatures: one side requires features that the other lacks.
	ErrMissingFeatures = session.ErrMissingFeatures
	// ErrAuth: the peer and we did not authenticate each other, as opposed to a
	// network that failed: we or it were refused, there is no method, mode or
	// ticket to use, a proof or a signature is wrong.
	ErrAuth = handshake.ErrAuth
	// ErrStale: a newer attempt of the same peer is on record.
	ErrStale = session.ErrStale
	// ErrHandshakeTimeout: the peer did not complete the handshake in time. It
	// wraps os.ErrDeadlineExceeded.
	ErrHandshakeTimeout = fmt.Errorf("control: handshake not complete in time: %w", os.ErrDeadlineExceeded)
	// ErrEvicted: an accepted connection gave its place among the half-open ones
	// to a newcomer, as its peer was silent.
	ErrEvicted = door.ErrEvicted
	// ErrWait: a connection race was lost, the peer's own attempt goes on.
	ErrWait = session.ErrWait
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
