package nodetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Probe disturbs and counts the connections of one messenger. It is the
// messenger's Config.Diagnostics.Probe, and its Dispatcher must stand in the
// messenger's chain. All methods may be called by any goroutine.
type Probe struct {
	mu      sync.Mutex
	seen    map[Point]int
	breaks  []*Break
	sockets map[uint64]*object // during their handshakes
	objects []*object
	conns   map[*control.Conn]*object
	wants   []string // of the last Await
	trace   []string
	begun   time.Time
	until   context.Context // counting stops when it ends
}

// NewProbe makes a probe for one messenger.
func NewProbe() *Probe {
	return &Probe{
		seen:    make(map[Point]int),
		sockets: make(map[uint64]*object),
		conns:   make(map[*control.Conn]*object),
		begun:   time.Now(),
		until:   context.Background(),
	}
}

// CountUntil ends the counting when ctx ends. With the context of a test, the effects of its
// clean-up on connections are not counted.
func (p *Probe) CountUntil(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = ctx
}

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
	breaks := append([]*Break(nil), p.breaks...)
	p.mu.Unlock()
	for _, b := range breaks {
		b.Release()
	}
}

// Check returns an error for each break that was not reached, and one if the
// counters have moved since the last Await.
func (p *Probe) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, b := range p.breaks {
		if !isClosed(b.hit) && !b.optional.Load() {
			errs = append(errs, fmt.Errorf("nodetest: %v: never reached", b))
		}
	}
	if have := p.describedLocked(); p.wants != nil && !slices.EqualFunc(have, p.wants, sameCounts) {
		errs = append(errs, fmt.Errorf("nodetest: objects went on after the expected end: %s", list(have)))
	}
	return errors.Join(errs...)
}

// Objects are the connections so far, in order of creation.
func (p *Probe) Objects() []Object {
	p.mu.Lock()
	objects := append([]*object(nil), p.objects...)
	p.mu.Unlock()
	out := make([]Object, len(objects))
	for i, o := range objects {
		p.mu.Lock()
		copied := *o
		p.mu.Unlock()
		out[i] = copied.snapshot() // asks the messenger: not under our lock
	}
	return out
}

// Await waits until the objects are described by these lines (Object.String). Check compares the
// counters once more.
func (p *Probe) Await(ctx context.Context, lines ...string) error {
	var objects []Object
	err := msgrtest.Until(ctx, func() bool {
		objects = p.Objects()
		return slices.EqualFunc(objects, lines, func(o Object, line string) bool { return o.String() == line })
	})
	if err != nil {
		return fmt.Errorf("nodetest: %w\nwant %s\nhave %s\n%s", err, list(lines), list(objects), p.Trace())
	}
	p.mu.Lock()
	p.wants = lines
	p.mu.Unlock()
	return nil
}

// sameCounts compares two descriptions but for the end of the object.
func sameCounts(a, b string) bool {
	_, a, _ = strings.Cut(a, " ")
	_, b, _ = strings.Cut(b, " ")
	return a == b
}

func list[T any](items []T) string {
	var b strings.Builder
	for i, x := range items {
		fmt.Fprintf(&b, "\n\t#%d %v", i, x)
	}
	return b.String()
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

// log adds a line to the trace. Caller holds mu.
func (p *Probe) log(format string, args ...any) {
	if len(p.trace) < traceMax {
		p.trace = append(p.trace, fmt.Sprintf("%7.1fms ", float64(time.Since(p.begun).Microseconds())/1000)+fmt.Sprintf(format, args...))
	}
}

// describedLocked are the objects as they are counted; their ends may be missing.
func (p *Probe) describedLocked() []string {
	out := make([]string, len(p.objects))
	for i, o := range p.objects {
		out[i] = o.Object.String()
	}
	return out
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
	switch {
	case e.When == probe.Data:
		return p.frame(e)
	case e.Step == probe.SocketDecided:
		p.decided(e)
		return nil
	case e.When == probe.After:
		return nil
	}
	return p.before(ctx, e)
}

// before is called ahead of a step of a handshake.
func (p *Probe) before(ctx context.Context, e probe.Event) error {
	p.mu.Lock()
	conn, _ := e.Conn.(*control.Conn)
	p.count(e.Socket.ID(), conn, e.Point)
	p.log("socket %d %s", e.Socket.ID(), PointName(e.Point))
	b := p.reached(e.Point)
	p.mu.Unlock()
	if b == nil {
		return nil
	}
	close(b.hit)
	return b.before(ctx)
}

// count notes a step in the counters of its object. Caller holds mu.
func (p *Probe) count(socket uint64, conn *control.Conn, at Point) {
	if p.until.Err() != nil {
		return
	}
	o := p.sockets[socket]
	if o == nil {
		o = &object{} // not counted, unless its first point says below what it is
	}
	switch at {
	case SocketConnecting():
		if o = p.conns[conn]; o == nil {
			o = p.object(conn)
		}
		o.Connect.Sockets++
	case SocketAccepted():
		o = p.object(nil)
		o.Accept.Sockets++
	case Write(frame.TagClientIdent):
		o.Connect.Idents++
	case Write(frame.TagSessionReconnect):
		o.Connect.Reconnects++
	case Read(frame.TagClientIdent):
		o.Accept.Idents++
	case Read(frame.TagSessionReconnect):
		o.Accept.Reconnects++
	}
	p.sockets[socket] = o
}

// object makes the next object. Caller holds mu.
func (p *Probe) object(conn *control.Conn) *object {
	o := &object{Object: Object{Conn: conn}}
	p.objects = append(p.objects, o)
	if conn != nil {
		p.conns[conn] = o
	}
	return o
}

// frame is called for a frame of the data phase, on the core.
func (p *Probe) frame(e probe.Event) error {
	p.mu.Lock()
	p.log("conn %d %s", e.Conn.ID(), PointName(e.Point))
	b := p.reached(e.Point)
	p.mu.Unlock()
	if b == nil {
		return nil
	}
	defer close(b.hit)
	return b.frame(e.Conn)
}

// decided is called when an accepted socket has become a connection, or was closed.
func (p *Probe) decided(e probe.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.sockets[e.Socket.ID()]
	if o == nil {
		return
	}
	conn, _ := e.Conn.(*control.Conn)
	switch {
	case conn == nil:
		p.log("socket %d closed", e.Socket.ID())
		o.over = true
	case e.TookOver:
		p.log("socket %d taken over by conn %d", e.Socket.ID(), conn.ID())
		o.End = Replaced
	default:
		p.log("socket %d made conn %d", e.Socket.ID(), conn.ID())
		o.Conn = conn
		p.conns[conn] = o
	}
}

// Dispatcher counts the events of connections. It takes no messages.
func (p *Probe) Dispatcher() *control.Dispatcher {
	event := func(c *control.Conn, what string, count func(o *object)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.log("conn %d event %s", c.ID(), what)
		if o := p.conns[c]; o != nil && p.until.Err() == nil {
			count(o)
		}
	}
	return &control.Dispatcher{
		Accept: func(c *control.Conn, _ int, _ bool) {
			event(c, "accept", func(o *object) { o.Accept.Events++ })
		},
		Connect: func(c *control.Conn, _ int) {
			event(c, "connect", func(o *object) { o.Connect.Events++ })
		},
		Reset: func(c *control.Conn, _ bool) {
			event(c, "reset", func(o *object) { o.Resets++ })
		},
		RemoteReset: func(c *control.Conn) {
			event(c, "remote reset", func(o *object) { o.RemoteResets++ })
		},
	}
}

// End is the state of an Object, or its end.
type End string

// The ends. Other values are names of states in between, such as "connecting".
const (
	Established End = "established"
	Standby     End = "standby"
	Closed      End = "closed"
	Replaced    End = "replaced" // its socket went to another connection
)

// Counters count what an object did in one role: sockets tried or accepted,
// CLIENT_IDENT sent or read, SESSION_RECONNECT sent or read, and connect or
// accept events. Frames count when their break point is reached, so also those
// that a fault prevents.
type Counters struct {
	Sockets, Idents, Reconnects, Events int
}

// Object is one connection as a Probe counts it, from its first dial or from
// the acceptance of its first socket.
type Object struct {
	Conn         *control.Conn // nil for a socket without a connection of its own
	Connect      Counters
	Accept       Counters
	Resets       int // reset events
	RemoteResets int // remote reset events
	End          End
}

// String is the end, then the counters as connector C(sockets,idents,reconnects,events), as
// acceptor A(...), and R(reset events,remote reset events). A group of zeros is left out.
func (o Object) String() string {
	out := string(o.End)
	for _, group := range []struct {
		name  string
		count []int
	}{
		{"C", []int{o.Connect.Sockets, o.Connect.Idents, o.Connect.Reconnects, o.Connect.Events}},
		{"A", []int{o.Accept.Sockets, o.Accept.Idents, o.Accept.Reconnects, o.Accept.Events}},
		{"R", []int{o.Resets, o.RemoteResets}},
	} {
		if slices.Max(group.count) > 0 {
			numbers := strings.Trim(fmt.Sprint(group.count), "[]")
			out += " " + group.name + "(" + strings.ReplaceAll(numbers, " ", ",") + ")"
		}
	}
	return out
}

// object is an Object under construction, guarded by the probe's lock.
type object struct {
	Object
	over bool // the socket was closed without a connection
}

func (o *object) snapshot() Object {
	s := o.Object
	switch {
	case o.End == Replaced:
	case o.Conn == nil && o.over:
		s.End = Closed
	case o.Conn == nil:
		s.End = "accepting"
	default:
		s.End = endOf(o.Conn.State())
	}
	return s
}

func endOf(s control.State) End {
	switch s {
	case control.StateReady:
		return Established
	case control.StateStandby:
		return Standby
	case control.StateClosing:
		return Closed
	}
	return End(s.String())
}
