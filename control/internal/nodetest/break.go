package nodetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Break is an armed action.
type Break struct {
	point  Point
	nth    int
	action Action
	hit    chan struct{} // closed when reached
	free   chan struct{} // closed when released

	optional atomic.Bool // Forget was called

	mu   sync.Mutex
	conn probe.Conn // held in the data phase; guarded by mu
}

// Hit is closed when the break is reached, before its step.
func (b *Break) Hit() <-chan struct{} { return b.hit }

// Wait waits for the break to be reached.
func (b *Break) Wait(ctx context.Context) error {
	select {
	case <-b.hit:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nodetest: %v: not reached: %w", b, context.Cause(ctx))
	}
}

// Release lets a connection go on that the break holds, or will hold. A
// second call does nothing.
func (b *Break) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if isClosed(b.free) {
		return
	}
	close(b.free)
	if b.conn != nil {
		b.conn.Resume()
		b.conn = nil
	}
}

// Forget is Release, and excuses the break from being reached.
func (b *Break) Forget() {
	b.optional.Store(true)
	b.Release()
}

func (b *Break) String() string {
	return fmt.Sprintf("%v at %v #%d", b.action, b.point, b.nth)
}

// before acts ahead of a step of a handshake.
func (b *Break) before(ctx context.Context) error {
	over := b.free
	switch a := b.action; {
	case a.delay > 0:
		over = make(chan struct{})
		t := time.AfterFunc(a.delay, func() { close(over) })
		defer t.Stop()
	case !a.block:
		return a.err
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// frame acts in the data phase, on the core.
func (b *Break) frame(c probe.Conn) error {
	switch a := b.action; {
	case a.delay > 0:
		time.AfterFunc(a.delay, c.Resume)
		return probe.ErrHold
	case !a.block:
		return a.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if isClosed(b.free) {
		return nil
	}
	b.conn = c
	return probe.ErrHold
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Action is the effect of a break.
type Action struct {
	name  string
	err   error // of the step
	block bool
	delay time.Duration
}

// Continue does nothing: the break only tells that the point was reached.
func Continue() Action { return Action{name: "continue"} }

// Fault makes the step fail before it happens: the socket is closed.
func Fault() Action { return Action{name: "fault", err: ErrInjected} }

// Reset is Fault, but the peer sees a TCP reset. Before a socket exists it is
// Fault.
func Reset() Action { return Action{name: "reset", err: probe.ErrReset} }

// HalfClose ends our direction of the TCP connection before the step and goes
// on: the next write fails, or the peer hangs up. Before a socket exists it is
// Fault.
func HalfClose() Action { return Action{name: "half-close", err: probe.ErrHalfClose} }

// Block holds the connection before the step until Break.Release. In a
// handshake that ends at the deadline of the attempt as well, with a fault.
func Block() Action { return Action{name: "block", block: true} }

// Delay waits before the step.
func Delay(d time.Duration) Action { return Action{name: "delay " + d.String(), delay: d} }

func (a Action) String() string { return a.name }

// ErrInjected is the error of a step that a break made fail.
var ErrInjected = errors.New("nodetest: injected fault")

// Point is a place at which a connection can be disturbed: a step that is
// about to happen (Ceph's Interceptor.h). Points of frames exist for every tag, in
// the handshake and in the data phase.
type Point = probe.Point

// SocketConnecting is the moment before a connector dials.
func SocketConnecting() Point { return Point{Step: probe.SocketConnecting} }

// SocketAccepted is the moment after a socket was accepted.
func SocketAccepted() Point { return Point{Step: probe.SocketAccepted} }

// BannerPayloadRead is the rest of the peer's banner.
func BannerPayloadRead() Point { return Point{Step: probe.BannerPayloadRead} }

// Write is a frame that is written.
func Write(tag frame.Tag) Point { return Point{Step: probe.FrameWrite, Tag: tag} }

// Read is a frame that is read. It is reached when the frame's head has
// arrived, as its tag is not known before.
func Read(tag frame.Tag) Point { return Point{Step: probe.FrameRead, Tag: tag} }

// Role is a side of one TCP connection.
type Role uint8

// The roles.
const (
	Connector Role = iota
	Acceptor
)

func (r Role) String() string {
	if r == Acceptor {
		return "acceptor"
	}
	return "connector"
}

// HandshakePoints are the points that a side passes in a handshake without a
// session before it, in order, with authentication that takes one round.
func HandshakePoints(r Role) []Point {
	first, ask, answer := SocketConnecting(), Write, Read
	if r == Acceptor {
		first, ask, answer = SocketAccepted(), Read, Write
	}
	return []Point{
		first, {Step: probe.BannerWrite}, {Step: probe.BannerRead}, BannerPayloadRead(), Write(frame.TagHello), Read(frame.TagHello),
		ask(frame.TagAuthRequest), answer(frame.TagAuthDone), Write(frame.TagAuthSignature), Read(frame.TagAuthSignature),
		ask(frame.TagClientIdent), answer(frame.TagServerIdent),
	}
}

// HandshakePoints1 are the points that a side passes in a handshake of msgr1 that opens
// or resumes a session, in order.
func HandshakePoints1(r Role) []Point {
	steps := []probe.Step{
		probe.SocketConnecting, probe.BannerRead, probe.BannerPayloadRead, probe.BannerWrite, probe.ConnectWrite, probe.ReplyRead, probe.SeqWrite,
	}
	if r == Acceptor {
		steps = []probe.Step{
			probe.SocketAccepted, probe.BannerWrite, probe.BannerRead, probe.BannerPayloadRead, probe.ConnectRead, probe.ReplyWrite, probe.SeqRead,
		}
	}
	points := make([]Point, len(steps))
	for i, s := range steps {
		points[i] = Point{Step: s}
	}
	return points
}

// ReconnectPoints are the points of a handshake that resumes a session and
// that differ from those of HandshakePoints.
func ReconnectPoints(r Role) []Point {
	if r == Acceptor {
		return []Point{Read(frame.TagSessionReconnect), Write(frame.TagSessionReconnectOK)}
	}
	return []Point{Write(frame.TagSessionReconnect), Read(frame.TagSessionReconnectOK)}
}

// DataPoints are the points of the data phase. A lossy connection never
// reaches those of ACK.
func DataPoints() []Point {
	var out []Point
	for _, tag := range []frame.Tag{frame.TagMessage, frame.TagAck, frame.TagKeepalive2, frame.TagKeepalive2Ack} {
		out = append(out, Write(tag), Read(tag))
	}
	return out
}
