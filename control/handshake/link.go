package handshake

import (
	"context"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Link is one TCP connection. Both calls return when ctx is done at the latest; the
// connection is of no use after an error. They are never called at the same time.
type Link interface {
	// ReadFull fills p. A link may prefetch, but what it has beyond p must still be there
	// for the next reader.
	ReadFull(ctx context.Context, p []byte) error
	// Write writes all of p and does not keep it. It must not wait for the peer to send
	// something first, as both sides begin with a write.
	Write(ctx context.Context, p []byte) error
}

// Step says what a [Point] is about.
type Step uint8

// The steps. The two socket steps happen outside of this package, before [Connect] and
// [Accept] are called; they are named here so that one [Hook] sees a whole connection.
const (
	SocketConnecting  Step = iota + 1 // before the connector dials
	SocketAccepted                    // a socket was accepted
	BannerWrite                       // own banner
	BannerRead                        // first ten bytes of the peer's banner
	BannerPayloadRead                 // the rest of it
	FrameWrite                        // one frame, see [Point.Tag]
	FrameRead                         // one frame, see [Point.Tag]
)

var stepNames = [...]string{
	SocketConnecting: "socket connecting", SocketAccepted: "socket accepted", BannerWrite: "banner write",
	BannerRead: "banner read", BannerPayloadRead: "banner payload read", FrameWrite: "write", FrameRead: "read",
}

// String names the step.
func (s Step) String() string {
	if int(s) < len(stepNames) && stepNames[s] != "" {
		return stepNames[s]
	}
	return "unknown step"
}

// Point is a place where a [Hook] can intervene.
type Point struct {
	Step Step
	Tag  frame.Tag // with [FrameWrite] and [FrameRead] only
}

// String describes the point, such as "read HELLO".
func (p Point) String() string {
	if p.Step == FrameWrite || p.Step == FrameRead {
		return p.Step.String() + " " + p.Tag.String()
	}
	return p.Step.String()
}

// Hook is called around every read and write of a [Stream], to observe and to inject
// faults (protocol section 10.12). An error makes the operation fail with that error.
// Both calls may block as long as the test wants, but must return when ctx is done.
//
// Before a frame is read its tag is not known, so Before of [FrameRead] comes when the
// head of the frame has arrived and been checked, before the rest of it is read. In mode
// secure of msgr2.0 the tag is not authenticated at that moment.
type Hook interface {
	Before(ctx context.Context, p Point) error
	After(ctx context.Context, p Point) error
}

// BufferedLink is a Link that needs a switch to another thread for each call that waits.
// A [Stream] without a probe makes few of those: it queues what it writes, and waits for
// several frames at once where the protocol lets the peer send them without an answer.
type BufferedLink interface {
	Link
	// Queue leaves p, which it does not keep, to the next call that waits: a ReadFull or an
	// Await that has to wait sends it before, and so does a Write or a Flush. Whoever takes
	// the connection over sends what is left.
	Queue(p []byte)
	// Flush writes what was queued.
	Flush(ctx context.Context) error
	// Await sends what was queued and returns when enough says so of the bytes that
	// ReadFull would return next, and also when no more of them come. It consumes nothing.
	// enough sees the same bytes each time, and more. It runs on any thread, may still run
	// when Await has returned because of ctx, and does not keep the bytes.
	Await(ctx context.Context, enough func(unread []byte) bool) error
}
