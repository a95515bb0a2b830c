package probe

import (
	"context"
	"errors"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Probe is asked at every point of every connection. Implementations are called by
// many goroutines at once.
type Probe interface {
	// At says what happens at a point; the package text has the answers. In a
	// handshake it is called on its goroutine and may wait until ctx ends. In the
	// data phase it is called on a core, and at SocketDecided by the goroutine that
	// decided: there it must not block, and at SocketDecided it must not call the messenger
	// or its connections.
	At(ctx context.Context, e Event) error
}

// Func is a function as a Probe.
type Func func(ctx context.Context, e Event) error

// At implements Probe.
func (f Func) At(ctx context.Context, e Event) error { return f(ctx, e) }

// Answers of a Probe. Handshakes take ErrHold for a fault.
var (
	// ErrReset ends the socket, and the peer sees a TCP reset.
	ErrReset = errors.New("probe: reset at a break point")
	// ErrHalfClose ends our direction of the socket and goes on: later writes fail,
	// and the bytes of the peer are still read. Before there is a socket it is a
	// fault.
	ErrHalfClose = errors.New("probe: half-closed at a break point")
	// ErrHold stops that direction of the data phase before the frame.
	ErrHold = errors.New("probe: held at a break point")
)

// Event is one point on one connection.
type Event struct {
	Point
	When   When
	Socket *Socket
	// Conn is nil until an acceptor has decided which connection its socket
	// belongs to.
	Conn Conn
	// TookOver, at SocketDecided, says that Conn is one that existed, else the
	// socket made it.
	TookOver bool
}

// When says whether an event comes before or after its step.
type When uint8

// A step of a handshake is told of twice, unless it fails, a frame of the data phase
// once: before it is written, and when the head of a received one is there.
const (
	Before When = iota // a step of a handshake is about to happen
	After              // it has happened
	Data               // a frame of the data phase is about to pass
)

// Conn is a connection as a probe sees it: a *control.Conn.
type Conn interface {
	// ID numbers the connection within its messenger, from 1.
	ID() uint64
	// Resume lets a data phase go on that ErrHold stopped. Any goroutine.
	Resume()
}

// Point is a place at which a connection can be disturbed (Ceph's Interceptor.h).
type Point struct {
	Step Step
	Tag  frame.Tag // with FrameWrite and FrameRead only
}

// String describes the point, such as "read HELLO".
func (p Point) String() string {
	if p.Step == FrameWrite || p.Step == FrameRead {
		return p.Step.String() + " " + p.Tag.String()
	}
	return p.Step.String()
}

// Step is the kind of a Point.
type Step uint8

// The steps. Before a frame of a handshake is read its tag is not known, so
// Before of FrameRead comes when the head of the frame has arrived and been
// checked, before the rest of it is read. In mode secure of msgr2.0 the tag is not
// authenticated at that moment.
const (
	SocketConnecting  Step = iota + 1 // before the connector dials; Before only
	SocketAccepted                    // a socket was accepted; Before only
	BannerWrite                       // own banner
	BannerRead                        // first ten bytes of the peer's banner
	BannerPayloadRead                 // the rest of it
	FrameWrite                        // one frame, see Point.Tag
	FrameRead                         // one frame, see Point.Tag

	// The messages of the handshake of msgr1, whose BannerWrite is the banner with the
	// addresses behind it, and whose BannerPayloadRead are those addresses. A connect
	// message and its answer come with what belongs to their authorizer.
	ConnectWrite
	ConnectRead
	ReplyWrite // with TagSeq, what was received is in it
	ReplyRead
	SeqWrite
	SeqRead

	// SocketDecided comes once for every accepted socket, After only: it made
	// Event.Conn, or took it over, or was closed without a connection of its own
	// (Conn is nil). It comes before the accept event. The answer is ignored.
	SocketDecided
)

var stepNames = [...]string{
	SocketConnecting: "socket connecting", SocketAccepted: "socket accepted", BannerWrite: "banner write",
	BannerRead: "banner read", BannerPayloadRead: "banner payload read", FrameWrite: "write", FrameRead: "read",
	ConnectWrite: "connect write", ConnectRead: "connect read", ReplyWrite: "reply write", ReplyRead: "reply read",
	SeqWrite: "sequence write", SeqRead: "sequence read",
	SocketDecided: "socket decided",
}

// String names the step.
func (s Step) String() string {
	if int(s) < len(stepNames) && stepNames[s] != "" {
		return stepNames[s]
	}
	return "unknown step"
}
