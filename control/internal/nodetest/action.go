package nodetest

import (
	"errors"
	"fmt"
	"time"
)

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
