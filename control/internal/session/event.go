package session

import "github.com/ringmsgr/ringmsgr/control/wire"

// Event is an event of a session, with its facts.
type Event interface {
	// Live applies the event to a session of protocol p, of which l is the common part.
	Live(l *Lifecycle, p Protocol, r *Run)
}

// Events of a connection.
type (
	// Connect says that the user connects.
	Connect struct{}
	// Queued says that there is a message to send.
	Queued struct{}
	// TimerFired says that run Run of the back-off timer is over. One that was
	// stopped may have fired already.
	TimerFired struct{ Run uint64 }
	// Lost says that the socket of the data phase is gone. Notification is the number
	// of the handler's notification, from 1. Useful: the socket received a message or
	// an ack, or lived for as long as the longest pause.
	Lost struct {
		Notification uint64
		IO           Snapshot
		Err          error
		Useful       bool
	}
	// Failed says that an attempt has failed. Terminal: dialling again would not
	// help.
	Failed struct {
		Attempt  uint64
		Err      error
		Terminal bool
	}
	// Close ends the connection. Reset: the user gets a reset event; Replace: a newer
	// connection of the peer takes the place of this lossy one.
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
		Record
		PeerGlobalSeq, ConnectSeq uint64
		Features                  wire.Features
		IO                        Snapshot
	}
	// Checked is the answer of the process at the address that the peer claims.
	Checked struct {
		Asked  Frame // Protocol.Question
		Answer Frame // nil: there was none
		Other  bool  // the process at the address cannot be the peer
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
		From  wire.Addr // the first address that the peer says it has
		Near  bool      // the socket comes from that IP
		// Existing is the session that the frame is about (Meant), nil for none. It may be of
		// another protocol. It is only read.
		Existing Protocol
		// Settled: all handshakes that were under way when Existing got its
		// numbers from its peer have ended, so that this one is not older.
		Settled bool
		// Ours: the address that the peer wants to reach is one of ours, though perhaps not
		// one of Env.Addrs, by which this peer has reached us.
		Ours bool
		// Ended: the session of the frame's cookie is over (Ended).
		Ended bool
		// Frozen: sessions stand still for a hand-over, or have left by one.
		Frozen bool
		// Refuse is why no connection may be made, nil if one may.
		Refuse error
	}
	// Replace has an accepted socket take the connection over (Ceph's ProtocolV2.cc).
	Replace struct {
		Frame  Frame           // of the Request
		Reset  bool            // the session is reset first
		Entity wire.EntityName // the name of the peer
		Proven bool            // it has proven that
	}
)

// Sender identifies the sender of a frame on an accepted socket.
type Sender struct {
	Addrs     wire.AddrVec // of which the first counts
	Target    wire.Addr    // the entity to reach
	Cookie    uint64       // of the client; 0 in msgr1
	GlobalSeq uint64
}

// Frame is one session frame, in the form of its protocol; fmt prints its name.
type Frame any

// OtherFrame is any frame that has no place in a session handshake.
type OtherFrame struct{ Name string }

// String is the name.
func (f OtherFrame) String() string { return f.Name }
