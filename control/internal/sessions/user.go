package sessions

import (
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// This file is the seam between the sessions and package control. Control calls methods of
// Manager and Conn; these call methods of Owner and User. Nothing else passes between the two
// sides: no lock and no field.
//
// Control has the Manager connect, accept, listen, end and hand over, and asks a Conn for its
// state, its Info, its statistics and its end. It sends by the handler of a Conn
// (Conn.Handler), on which it also has postings, pauses, drains and tasks; only the Manager
// opens, moves and closes the handler.

// Owner is the messenger above a Manager.
type Owner interface {
	// NewUser makes the upper side of a connection that is being made; local: it leads to
	// ourselves. The Manager holds its lock: NewUser changes memory and does nothing else.
	NewUser(local bool) User
}

// User is the upper side of one connection. It holds the Conn and stays the same for its whole
// life. The session side never calls the embedder's code: the User does.
type User interface {
	// The handler calls its owner without a detour by the session side, so that a message
	// takes one step from the core to the dispatchers. It says, on its core:
	//
	//   - Dispatch: a message was received.
	//   - Moving, Moved: the connection goes to another core. Moved is how the User hears that
	//     the connection was accepted, was connected or has changed cores.
	//   - Happened: a Reset or a RemoteReset, in its place among the messages.
	//   - KeepaliveAck: the peer has answered a keepalive.
	//   - Faulted, Queued: these are for the session. The User passes them to Conn.Faulted and
	//     Conn.Queued.
	dataplane.Owner

	// Conn is the session side of the connection, a part of the User.
	Conn() *Conn
	// Probed is the connection as Config.Diagnostics.Probe knows it.
	Probed() probe.Conn

	// Cease ends the dispatching at once: waiting messages are dropped. The Manager may hold
	// its lock: Cease changes memory and does nothing else.
	Cease()
	// Finish ends the dispatching after the messages that were received. It says whether some
	// of them still wait for a goroutine of the User; then the User calls Conn.Dispatched once
	// none waits any more. If none waits, Finish is Cease. The Manager holds its lock.
	Finish() (waits bool)
	// Lost reports on the core that the session is over, while received messages still wait.
	Lost()
	// Idle returns a channel that closes once no received message waits for a goroutine of the
	// User.
	Idle() <-chan struct{}
	// Due is the number of replies that the User has promised and not given. It is asked while the
	// session stands still for a hand-over.
	Due() int
	// Closed reports on the core, or on another goroutine if the core has ended, that the
	// handler is empty. It is the last call.
	Closed()
}

// Reset and RemoteReset are the events of a session (dataplane.Owner.Happened).
type (
	// Reset says that the connection is over, without a request of our side. Replace: another
	// connection of the peer takes its place.
	Reset struct{ Replace bool }
	// RemoteReset says that the peer has lost the session. The connection goes on with a new one.
	RemoteReset struct{}
)
