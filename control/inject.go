package control

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/inject"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Inject has a messenger disturb itself by chance, so that what stands on it can be
// tried: its sockets fail, its handshakes take time, and what it receives is
// dispatched late (msgr1.md, section 22, for both protocols). What is promised of
// sessions holds all the same. The zero value does nothing and costs nothing.
type Inject struct {
	// Seed decides what happens; 0: a number of Config.Rand. With one core, whose
	// operations come in the same order, the same seed does the same again.
	Seed uint64
	// SocketFailures has one in so many operations on sockets, sends and reads,
	// handshakes included, shut its socket down first; 0: none.
	SocketFailures int
	// Handshakes delays their steps: the dial, an accepted socket, each write and
	// read. HandshakeTimeout goes on meanwhile.
	Handshakes Delay
	// Dispatches delays received messages; the first that matches decides.
	Dispatches []DispatchDelay
}

// Delay is by chance: with Probability, from 0 to 1, of up to Max, each duration
// alike.
type Delay struct {
	Probability float64
	Max         time.Duration
}

// DispatchDelay delays the dispatch of received messages. Those of a connection stay in
// order: whatever comes behind one that is delayed waits for it. A message that waits
// counts against the dispatch limit, and as received. When the socket is lost, or
// the connection ends with a reset event, those that wait are dispatched at once;
// when the peer has lost its session, or after MarkDown, they are dropped. A
// connection to ourselves has no delays.
type DispatchDelay struct {
	Peers []wire.EntityType // types of peers; none: all
	Types []uint16          // types of messages; none: all
	Delay
}

// validate calls bad for every problem.
func (i *Inject) validate(bad func(format string, args ...any)) {
	if i.SocketFailures < 0 {
		bad("one socket failure in %d operations", i.SocketFailures)
	}
	delay := func(what string, d Delay) {
		if !(d.Probability >= 0 && d.Probability <= 1) || d.Max < 0 {
			bad("injected delays of %s: probability %v, at most %v", what, d.Probability, d.Max)
		}
	}
	delay("handshakes", i.Handshakes)
	for _, d := range i.Dispatches {
		delay("dispatches", d.Delay)
	}
}

// injector is an Inject at work. Any goroutine may use it.
type injector struct {
	Inject
	clock Clock
	mu    sync.Mutex
	rng   *rand.Rand // guarded by mu
}

// newInjector puts what c injects into its plane and its probe. It is nil if that is
// nothing.
func newInjector(what Inject, c *sessions.Config) *injector {
	i := &injector{Inject: what, clock: c.Clock}
	if i.SocketFailures == 0 && i.Handshakes.Probability == 0 && len(i.Dispatches) == 0 {
		return nil
	}
	if i.Seed == 0 {
		i.Seed = random(c.Rand)
	}
	i.rng = rand.New(rand.NewPCG(i.Seed, ^uint64(0))) // no core has that number
	if i.SocketFailures > 0 {
		c.Plane.Open = inject.Open(c.Plane.Opener(), i.SocketFailures, i.Seed)
	}
	if i.Handshakes.Probability > 0 {
		c.Probe = i.slow(c.Probe)
	}
	c.Logger.Warn("faults or delays are injected", "seed", i.Seed, "one_failure_in", i.SocketFailures,
		"handshakes", i.Handshakes.Probability, "dispatches", len(i.Dispatches))
	return i
}

// draw is how long one delay takes, 0 for none.
func (i *injector) draw(d Delay) time.Duration {
	if d.Probability == 0 {
		return 0
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rng.Float64() >= d.Probability {
		return 0
	}
	return time.Duration(i.rng.Float64() * float64(d.Max))
}

// slow is a probe that delays the steps of handshakes, before next is asked.
func (i *injector) slow(next probe.Probe) probe.Probe {
	return probe.Func(func(ctx context.Context, e probe.Event) error {
		if e.When == probe.Before {
			due := make(chan struct{})
			if d := i.draw(i.Handshakes); d > 0 {
				stop := i.clock.AfterFunc(d, func() { close(due) })
				defer stop()
				select {
				case <-due:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		if next == nil {
			return nil
		}
		return next.At(ctx, e)
	})
}

// late says by how much a message is delayed, and whether messages of such peers can
// be delayed at all.
func (i *injector) late(peer wire.EntityType, message uint16) (by time.Duration, ever bool) {
	for _, d := range i.Dispatches {
		if len(d.Peers) > 0 && !slices.Contains(d.Peers, peer) {
			continue
		}
		ever = true
		if len(d.Types) == 0 || slices.Contains(d.Types, message) {
			return i.draw(d.Delay), true
		}
	}
	return 0, ever
}

// line holds back the messages of one connection, nil if i delays none.
func (i *injector) line() *dispatchLine {
	if i == nil || len(i.Dispatches) == 0 {
		return nil
	}
	return &dispatchLine{inject: i, flushed: make(chan struct{})}
}

// dispatchLine holds back received messages of one connection (DispatchDelay). They
// are in its dispatchQueue, whose goroutine waits for the moment of each, has the core
// dispatch it, and calls Dispatcher.Queued if that is what is left to do. So order,
// discarding and the end of the connection are those of the queue.
type dispatchLine struct {
	inject *injector

	mu      sync.Mutex
	flushed chan struct{} // closed by flush, and replaced; guarded by mu
}

// flush has what waits now dispatched at once. nil has nothing that waits.
func (l *dispatchLine) flush() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flushed)
	l.flushed = make(chan struct{})
}

// heldMessage is one message in the line.
type heldMessage struct {
	line    *dispatchLine
	due     time.Time // zero: as soon as those before it are through
	flushed <-chan struct{}
	session uint64 // of the queue
}

// takes says whether the line takes a message, on the core. It takes those too that
// are not delayed, if others of the connection may be, to keep their order.
func (l *dispatchLine) takes(c *Conn, msg *Message) bool {
	by, ever := l.inject.late(c.PeerType(), msg.Type)
	if !ever {
		return false
	}
	l.mu.Lock()
	e := &heldMessage{line: l, flushed: l.flushed, session: c.queue.session.Load()}
	l.mu.Unlock()
	if by > 0 {
		e.due = l.inject.clock.Now().Add(by)
	}
	msg.Retain()
	c.queue.push(c.m, c, &Dispatcher{Queued: e.run}, msg)
	return true
}

// run is on the goroutine of the queue.
func (e *heldMessage) run(c *Conn, msg *Message) {
	e.wait(c)
	offered := make(chan *Dispatcher, 1)
	c.s.Handler().Do(func(*dataplane.Core) { offered <- e.offer(c, msg) })
	if d := <-offered; d != nil {
		d.Queued(c, msg)
	}
}

// wait is until the message is due, the line is flushed, or the connection has ended.
func (e *heldMessage) wait(c *Conn) {
	if e.due.IsZero() {
		return
	}
	clock, due := e.line.inject.clock, make(chan struct{})
	d := e.due.Sub(clock.Now())
	if d <= 0 {
		return
	}
	stop := clock.AfterFunc(d, func() { close(due) })
	defer stop()
	select {
	case <-due:
	case <-e.flushed:
	case <-c.Closed():
	}
}

// offer dispatches on the core, unless the connection or its session has ended.
func (e *heldMessage) offer(c *Conn, msg *Message) *Dispatcher {
	if c.over.Load() || c.queue.session.Load() != e.session {
		return nil
	}
	c.m.s.EnterCore()
	defer c.m.s.LeaveCore()
	return c.m.offer(c, msg)
}
