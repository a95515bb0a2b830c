package nodetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	wants   []want // of the last Await
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
	if p.wants != nil {
		if len(p.objects) != len(p.wants) {
			errs = append(errs, fmt.Errorf("nodetest: objects made behind the expected end: %s", p.describe()))
		} else {
			for i, w := range p.wants {
				if !w.counted(p.objects[i].Object) {
					errs = append(errs, fmt.Errorf("nodetest: #%d went on behind the expected end: %s", i, p.describe()))
				}
			}
		}
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

// Await waits until there is one object for each line, and each object matches its line: an end,
// then counters as connector C(sockets, idents, reconnects, events), as acceptor A(...), and R(reset events, remote reset events).
// A missing group must be 0; a number may be "*", "2+" or "1-2", and an end
// "closed|standby". Check compares the counters once more.
func (p *Probe) Await(ctx context.Context, lines ...string) error {
	wants := make([]want, len(lines))
	for i, l := range lines {
		w, err := parseWant(l)
		if err != nil {
			return err
		}
		wants[i] = w
	}
	var objects []Object
	err := msgrtest.Until(ctx, func() bool {
		objects = p.Objects()
		return matchAll(wants, objects)
	})
	if err != nil {
		return fmt.Errorf("nodetest: %w\nwant %s\nhave %s\n%s", err, list(lines), list(objects), p.Trace())
	}
	p.mu.Lock()
	p.wants = wants
	p.mu.Unlock()
	return nil
}

func matchAll(wants []want, objects []Object) bool {
	if len(wants) != len(objects) {
		return false
	}
	for i, w := range wants {
		if !w.matches(objects[i]) {
			return false
		}
	}
	return true
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

func (p *Probe) describe() string {
	items := make([]Object, len(p.objects))
	for i, o := range p.objects {
		items[i] = o.Object
	}
	return list(items)
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

func (c Counters) String() string {
	return fmt.Sprintf("(%d,%d,%d,%d)", c.Sockets, c.Idents, c.Reconnects, c.Events)
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

// String describes the object in the form that Probe.Await compares.
func (o Object) String() string {
	return fmt.Sprintf("%s C%v A%v R(%d,%d)", o.End, o.Connect, o.Accept, o.Resets, o.RemoteResets)
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

// want is a parsed line of Probe.Await.
type want struct {
	ends   []End
	counts [3][]bound // C, A, R
}

// bound is one number of a line: min to max.
type bound struct{ min, max int }

const anyNumber = int(^uint(0) >> 1)

// parseWant reads a line such as "established C(2,1,0,1) A(0,*,1+,0)". Groups
// that are missing must be 0; "closed|standby" allows both.
func parseWant(line string) (want, error) {
	w := want{counts: [3][]bound{make([]bound, 4), make([]bound, 4), make([]bound, 2)}}
	for i, word := range strings.Fields(line) {
		if i == 0 {
			for _, e := range strings.Split(word, "|") {
				w.ends = append(w.ends, End(e))
			}
			continue
		}
		at := strings.IndexByte("CAR", word[0])
		if at < 0 || !strings.HasPrefix(word[1:], "(") || !strings.HasSuffix(word, ")") {
			return w, fmt.Errorf("nodetest: %q in %q, want C(...), A(...) or R(...)", word, line)
		}
		parts := strings.Split(word[2:len(word)-1], ",")
		if len(parts) != len(w.counts[at]) {
			return w, fmt.Errorf("nodetest: %d numbers in %q, want %d", len(parts), word, len(w.counts[at]))
		}
		for j, p := range parts {
			b, err := parseBound(p)
			if err != nil {
				return w, fmt.Errorf("nodetest: %q in %q: %w", p, line, err)
			}
			w.counts[at][j] = b
		}
	}
	if len(w.ends) == 0 {
		return w, fmt.Errorf("nodetest: empty expectation")
	}
	return w, nil
}

// parseBound reads a number, "N+" for at least N, "N-M" for a range, or "*".
func parseBound(s string) (bound, error) {
	if s == "*" {
		return bound{0, anyNumber}, nil
	}
	if low, ok := strings.CutSuffix(s, "+"); ok {
		n, err := strconv.Atoi(low)
		return bound{n, anyNumber}, err
	}
	low, high, ok := strings.Cut(s, "-")
	n, err := strconv.Atoi(low)
	if err != nil || !ok {
		return bound{n, n}, err
	}
	m, err := strconv.Atoi(high)
	return bound{n, m}, err
}

func (b bound) holds(n int) bool { return n >= b.min && n <= b.max }

// counted compares the counters.
func (w want) counted(o Object) bool {
	for i, c := range [2]Counters{o.Connect, o.Accept} {
		for j, n := range [4]int{c.Sockets, c.Idents, c.Reconnects, c.Events} {
			if !w.counts[i][j].holds(n) {
				return false
			}
		}
	}
	return w.counts[2][0].holds(o.Resets) && w.counts[2][1].holds(o.RemoteResets)
}

// matches compares everything.
func (w want) matches(o Object) bool {
	for _, e := range w.ends {
		if e == o.End {
			return w.counted(o)
		}
	}
	return false
}
