package nodetest

import (
	"context"
	"errors"
	"fmt"
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
		if !b.wasHit() && !b.optional.Load() {
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

// Await waits until there is one object for each line, and each object matches its line: an end, then counters as connector C(sockets, idents, reconnects,
// events), as acceptor A(...), and R(reset events, remote reset events).
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
