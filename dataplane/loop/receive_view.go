package loop

import (
	"slices"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// ReceiveView shows any goroutine how the socket of a ReceiveShower receives. Its core
// writes it when that changes, not with each read.
type ReceiveView struct{ at atomic.Uint32 }

// ReceiveShower is a Framer that shows how its socket receives.
type ReceiveShower interface {
	Framer
	// ReceiveView is written while the framer has the socket. A framer of several sockets
	// has one for each.
	ReceiveView(s *Socket) *ReceiveView
}

// reasons are those of sockets; a view names them by their place here.
var reasons = [...]Why{WhyAsked, WhyEngine, WhyWhole, WhyBegun, WhySmall, WhyLarge, WhyStopped, WhyBehind, WhyExhausted}

// Receives is the mode, ReceiveBuffers or ReceiveReady, and why; both are empty without a
// socket. Any goroutine.
func (v *ReceiveView) Receives() (ReceiveMode, Why) {
	switch at := v.at.Load(); {
	case at == 0:
		return "", ""
	case at%2 == 0:
		return ReceiveReady, reasons[at/2-1]
	default:
		return ReceiveBuffers, reasons[at/2]
	}
}

// show is called when the way of the socket has changed, or its framer has come.
func (s *Socket) show() {
	if s.view == nil {
		return
	}
	at := slices.Index(reasons[:], s.way.why)
	invariants.Check(at >= 0, "a reason that has no number")
	if s.way.ready {
		at++
		s.view.at.Store(uint32(2 * at))
	} else {
		s.view.at.Store(uint32(2*at + 1))
	}
}

// hide is called when the socket has no framer any more.
func (s *Socket) hide() {
	if s.view != nil {
		s.view.at.Store(0)
		s.view = nil
	}
}
