package session

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Action is an action for the caller of Advance. The tests have its text in the scripts.
type Action any

// Actions that change the caller's memory, at once.
type (
	// StateChanged says that the state has changed.
	StateChanged struct {
		From State
		By   Trigger
		To   State
	}
	// Illegal is a bug of ours, an event that the state does not allow.
	Illegal struct{ Err error }
	// Faulted says that the session or its attempt has failed.
	Faulted struct {
		From State
		Err  error
	}
	// Count counts one of Counter.
	Count struct{ What Counter }
	// Renamed says that the peer's addresses have changed, from and to the first
	// of them. Also: the peer, which we dialled, finds the connection under the
	// new one, too.
	Renamed struct {
		From, To wire.Addr
		Also     bool
	}
	// Only says that the peer at the target has no other session with us: our other
	// sessions with it (Doubles) end.
	Only struct{}
	// Disproved says that the process at an address does not know the session of a peer
	// that claimed the address: no claim to it is believed any more.
	Disproved struct{ Addr wire.Addr }
	// HintReceived says that the peer's cookie may name the core that owns the
	// session there (owner hint).
	HintReceived struct{ Cookie uint64 }
	// HintDropped says that the owner hint is not valid any more.
	HintDropped struct{}
	// Remember has Ended remember a session that ends: a CLIENT_IDENT under way
	// may be about it.
	Remember struct {
		Name          Name
		PeerGlobalSeq uint64
	}
	// End says that the connection is over. Err is why, nil for the last fault.
	End struct{ Err error }
	// Silence stops the sends and dispatches of the handler. It takes effect at once, ahead of
	// CloseIO.
	Silence struct{}
	// NewConn makes a connection of the accepted socket. The actions after it are for
	// that connection. ReplaceLossy: the existing one is closed before, with
	// Close{Reset: true, Replace: true}.
	NewConn struct{ ReplaceLossy bool }
	// TakeOver gives the accepted socket to the existing connection, by Replace.
	TakeOver struct{ Reset bool }
)

// Actions on the handler, the timer and the log, in the order of the connection's steps.
type (
	// Suspend closes the handler's socket, if there is one. Notify: it reports messages to
	// send. ReplyTo is the attempt that gets the snapshot; 0: none.
	Suspend struct {
		Notify  bool
		ReplyTo uint64
	}
	// Requeue queues sent messages without an ack again.
	Requeue struct{}
	// RequeueUpTo drops the sent messages up to Seq, which the peer has received, and
	// queues the rest again.
	RequeueUpTo struct{ Seq uint64 }
	// ResetPeer prepares for a peer that does not know the session.
	ResetPeer struct{}
	// ResetIO forgets the session; Full: with its queues. Anywhere: its messages are numbered
	// from a random number on (Ceph's ProtocolV1.cc).
	ResetIO struct{ Full, Anywhere bool }
	// TellReset tells the user that the connection is over, among the events of
	// the handler.
	TellReset struct{ Replace bool }
	// TellRemoteReset tells the user that the peer lost the session, likewise.
	TellRemoteReset struct{}
	// MoveHandler moves the handler to the core of the attempt's socket. The attempt
	// has to report HandlerMoved then, or Failed.
	MoveHandler struct {
		Attempt  uint64
		Accepted bool // by an accepted socket, else by one that we dialled
		Replace  bool // it takes the place of another connection
	}
	// Open gives the socket to the handler.
	Open struct{ Attempt uint64 }
	// CloseIO is the handler's end.
	CloseIO struct{}
	// Probe has the existing connection send a keepalive, so that a dead one is
	// noticed.
	Probe struct{}
	// StartTimer starts run Run of the back-off timer.
	StartTimer struct {
		Run   uint64
		After time.Duration
	}
	// StopTimer ends the back-off timer.
	StopTimer struct{}
	// Log is an entry about the last fault.
	Log struct{ Text string }
	// Dial begins an attempt of our own, once the one before has ended.
	Dial struct{ Attempt uint64 }
	// Cancel ends the attempt under way, if there is one.
	Cancel struct{ Err error }
)

// Actions of the attempt whose event it was, last: they may wait for the network.
type (
	// Send sends a frame. In the states Establishing and Replacing Sent has to
	// follow, in ServerWait nothing, else the peer's next frame.
	Send struct{ Frame Frame }
	// Hangup closes an accepted socket that belongs to no connection.
	Hangup struct{ Err error }
	// Superseded says that another attempt has the connection now. This one ends.
	Superseded struct{}
)

// Counter is a number in the statistics.
type Counter uint8

// The counters.
const (
	Attempts     Counter = iota // dials
	Idents                      // CLIENT_IDENT sent
	Reconnects                  // SESSION_RECONNECT sent
	Retries                     // SESSION_RETRY and SESSION_RETRY_GLOBAL received
	Replaced                    // accepted sockets that took the connection over
	Readies                     // times that it became ready
	Resets                      // reset events
	RemoteResets                // remote reset events
	WaitsSent
	RetriesSent
	ResetsSent
	PartialResetsSent // of these, resets that leave the peer its queue
)

var counterNames = [...]string{
	"attempts", "idents", "reconnects", "retries", "replaced", "ready", "resets", "remote resets",
	"waits sent", "retries sent", "resets sent", "partial resets sent",
}

// String is the name in scripts.
func (c Counter) String() string { return counterNames[c] }
