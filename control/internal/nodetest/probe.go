package nodetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Probe disturbs the connections of one messenger. It is the messenger's
// Config.Diagnostics.Probe. All methods may be called by any goroutine.
type Probe struct {
	mu     sync.Mutex
	seen   map[Point]int
	breaks []*Break
	trace  []string
	begun  time.Time
}

// NewProbe makes a probe for one messenger.
func NewProbe() *Probe { return &Probe{seen: make(map[Point]int), begun: time.Now()} }

// Arm sets an action at the nth occurrence of a point, counted from 1 and from
// the making of the probe.
func (p *Probe) Arm(at Point, nth int, a Action) *Break {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.armLocked(at, nth, a)
}

func (p *Probe) armLocked(at Point, nth int, a Action) *Break {
	b := &Break{point: at, nth: nth, action: a, hit: make(chan struct{}), free: make(chan struct{})}
	p.breaks = append(p.breaks, b)
	return b
}

// ArmNext is Arm for the next occurrence. One that comes at the same moment is
// either counted before, or it is the next one.
func (p *Probe) ArmNext(at Point, a Action) *Break {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.armLocked(at, p.seen[at]+1, a)
}

// Seen is the number of times that a point was reached.
func (p *Probe) Seen(at Point) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[at]
}

// ReleaseAll releases every break.
func (p *Probe) ReleaseAll() {
	p.mu.Lock()
	breaks := slices.Clone(p.breaks)
	p.mu.Unlock()
	for _, b := range breaks {
		b.Release()
	}
}

// Check returns an error for each break that was not reached.
func (p *Probe) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, b := range p.breaks {
		if !isClosed(b.hit) && !b.optional.Load() {
			errs = append(errs, fmt.Errorf("nodetest: %v: never reached", b))
		}
	}
	return errors.Join(errs...)
}

// Trace is every step of all handshakes, every frame and every event so far,
// one per line, with the time since the probe was made.
func (p *Probe) Trace() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.trace, "\n")
}

// traceMax bounds the trace, for tests that move many messages.
const traceMax = 2000

// note adds a line to the trace.
func (p *Probe) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log(format, args...)
}

// log is note for a caller that holds mu.
func (p *Probe) log(format string, args ...any) {
	if len(p.trace) < traceMax {
		p.trace = append(p.trace, fmt.Sprintf("%7.1fms ", float64(time.Since(p.begun).Microseconds())/1000)+fmt.Sprintf(format, args...))
	}
}

// reached counts a point and returns the break that is armed for it. Caller holds mu.
func (p *Probe) reached(at Point) *Break {
	p.seen[at]++
	for _, b := range p.breaks {
		if b.point == at && b.nth == p.seen[at] {
			p.log("  %v", b)
			return b
		}
	}
	return nil
}

// At implements probe.Probe.
func (p *Probe) At(ctx context.Context, e probe.Event) error {
	if e.When == probe.After || e.Step == probe.SocketDecided {
		return nil
	}
	p.mu.Lock()
	if e.When == probe.Data {
		p.log("conn %d %v", e.Conn.ID(), e.Point)
	} else {
		p.log("socket %d %v", e.Socket.ID(), e.Point)
	}
	b := p.reached(e.Point)
	p.mu.Unlock()
	if b == nil {
		return nil
	}
	if e.When == probe.Data { // on the core
		defer close(b.hit)
		return b.frame(e.Conn)
	}
	close(b.hit)
	return b.before(ctx)
}
