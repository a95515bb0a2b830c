package nodetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	select {
	case <-b.free:
		return
	default:
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
	return fmt.Sprintf("%v at %s #%d", b.action, PointName(b.point), b.nth)
}

func (b *Break) wasHit() bool {
	select {
	case <-b.hit:
		return true
	default:
		return false
	}
}

// before acts ahead of a step of a handshake.
func (b *Break) before(ctx context.Context) error {
	switch b.action.kind {
	case actFault:
		return ErrInjected
	case actReset:
		return probe.ErrReset
	case actHalfClose:
		return probe.ErrHalfClose
	case actBlock:
		return b.held(ctx)
	case actDelay:
		t := time.NewTimer(b.action.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (b *Break) held(ctx context.Context) error {
	select {
	case <-b.free:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// frame acts in the data phase, on the core.
func (b *Break) frame(c probe.Conn) error {
	switch b.action.kind {
	case actFault:
		return ErrInjected
	case actReset:
		return probe.ErrReset
	case actHalfClose:
		return probe.ErrHalfClose
	case actBlock:
		return b.hold(c)
	case actDelay:
		time.AfterFunc(b.action.delay, c.Resume)
		return probe.ErrHold
	}
	return nil
}

func (b *Break) hold(c probe.Conn) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.free:
		return nil
	default:
	}
	b.conn = c
	return probe.ErrHold
}

// Action is the effect of a break.
type Action struct {
	kind  actionKind
	delay time.Duration
}

type actionKind uint8

const (
	actContinue actionKind = iota
	actFault
	actReset
	actHalfClose
	actBlock
	actDelay
)

// Continue does nothing: the break only tells that the point was reached.
func Continue() Action { return Action{kind: actContinue} }

// Fault makes the step fail before it happens: the socket is closed.
func Fault() Action { return Action{kind: actFault} }

// Reset is Fault, but the peer sees a TCP reset. Before a socket exists it is
// Fault.
func Reset() Action { return Action{kind: actReset} }

// HalfClose ends our direction of the TCP connection before the step and goes
// on: the next write fails, or the peer hangs up. Before a socket exists it is
// Fault.
func HalfClose() Action { return Action{kind: actHalfClose} }

// Block holds the connection before the step until Break.Release. In a
// handshake that ends at the deadline of the attempt as well, with a fault.
func Block() Action { return Action{kind: actBlock} }

// Delay waits before the step.
func Delay(d time.Duration) Action { return Action{kind: actDelay, delay: d} }

func (a Action) String() string {
	switch a.kind {
	case actDelay:
		return fmt.Sprintf("delay %v", a.delay)
	default:
		return [...]string{"continue", "fault", "reset", "half-close", "block"}[a.kind]
	}
}

// ErrInjected is the error of a step that a break made fail.
var ErrInjected = errors.New("nodetest: injected fault")
