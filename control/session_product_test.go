package control_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/steplock"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Every break point with every way to lose a connection, under every policy and
// on both sides. Nobody wrote down what must come of each: outlook derives it
// from the policies and from how far each side had come.

// disturbances are the ways to lose a connection, or to be slow.
var (
	byFault, byReset, byHalfClose = nodetest.Fault(), nodetest.Reset(), nodetest.HalfClose()
	byStall                       = nodetest.Block() // past the deadline
	byDelay                       = nodetest.Delay(100 * time.Millisecond)

	disturbances = []nodetest.Action{byFault, byReset, byHalfClose, byStall, byDelay}
)

// stallDeadline is the keepalive limit of trials that stall.
const stallDeadline = 2 * time.Second

// pairing is two policies that belong together.
type pairing struct{ connector, acceptor string }

var pairings = []pairing{{"LC", "SLS"}, {"LC", "SLR"}, {"LLC", "SFS"}, {"LP", "LP"}, {"LPR", "LPR"}}

func (p pairing) lossy() bool { return shortPolicies[p.acceptor]().Lossy }

// trial is one cell of the product.
type trial struct {
	pairing
	role nodetest.Role // the side that is disturbed
	at   nodetest.Point
	how  nodetest.Action
	v    variant
}

func (c trial) name() string {
	return title(c.connector+"-"+c.acceptor, c.role, c.at, c.how, c.v)
}

func (c trial) resumes() bool { return slices.Contains(nodetest.ReconnectPoints(c.role), c.at) }
func (c trial) inData() bool  { return slices.Contains(nodetest.DataPoints(), c.at) }

// productOf is every trial that exists in these variants.
func productOf(list []variant) (out []trial) {
	for _, v := range list {
		for _, p := range pairings {
			for _, role := range []nodetest.Role{nodetest.Connector, nodetest.Acceptor} {
				at := append(v.breakPoints(role), nodetest.DataPoints()...)
				if !p.lossy() && !v.msgr1 {
					at = append(at, nodetest.ReconnectPoints(role)...)
				}
				for _, at := range at {
					if p.lossy() && at.Tag == frame.TagAck {
						continue // lossy connections do not acknowledge
					}
					for _, how := range disturbances {
						if v.msgr1 && p.lossy() && at.Step == probe.SeqRead && how == byReset {
							continue // the reset may come before the answer that opens the connection
						}
						out = append(out, trial{p, role, at, how, v})
					}
				}
			}
		}
	}
	return out
}

// reach is how far both sides have come when the connection is lost.
type reach uint8

const (
	undecided reach = iota // no session yet
	decided                // the acceptor has one, the connector does not know
	both                   // both are ready
	never                  // nothing is lost
)

// reach derives it from the point.
func (c trial) reach() reach {
	if c.how == byDelay {
		return never
	}
	if c.inData() {
		return both
	}
	points := c.v.handshakePoints(c.role)
	if c.resumes() {
		points = nodetest.ReconnectPoints(c.role)
	}
	i := slices.Index(points, c.at)
	if c.how == byHalfClose && i > 0 {
		// What is read still comes; the next write fails, and if there is none
		// the peer hangs up on a session that is ready.
		for i < len(points) && !writes(points[i]) {
			i++
		}
		if i == len(points) {
			return both
		}
	}
	switch points[i] {
	case nodetest.Read(frame.TagServerIdent), nodetest.Write(frame.TagServerIdent),
		nodetest.Read(frame.TagSessionReconnectOK), nodetest.Write(frame.TagSessionReconnectOK),
		nodetest.Point{Step: probe.ReplyWrite}, nodetest.Point{Step: probe.ReplyRead},
		nodetest.Point{Step: probe.SeqWrite}:
		return decided
	case nodetest.Point{Step: probe.SeqRead}:
		if c.lossy() {
			return both // the connector is ready
		}
	}
	return undecided
}

func writes(p nodetest.Point) bool {
	switch p.Step {
	case probe.BannerWrite, probe.FrameWrite, probe.ConnectWrite, probe.ReplyWrite, probe.SeqWrite:
		return true
	}
	return false
}

// outlook is what must come of the connections of one side: for each that had
// an event, whether it is over with a reset event or lives without one.
type outlook []bool // over

func (c trial) outlook(side nodetest.Role) outlook {
	const over, lives = true, false
	switch r := c.reach(); {
	case !c.lossy() || r == never || r == undecided:
		return outlook{lives}
	case r == both:
		return outlook{over}
	case side == nodetest.Acceptor:
		return outlook{over, lives}
	}
	return outlook{lives}
}

// early says that the reset overtakes what was written before it, or does not: a point of
// reading in msgr1 is reached before anything has come, so that the acceptor may see the end
// of the socket before it decides, or the connector before it has written.
func (c trial) early() bool {
	return c.v.msgr1 && c.how == byReset && (c.at.Step == probe.SeqRead || c.at.Step == probe.ReplyRead)
}

// earlyOutlook is what else may come of the acceptor's connections if it was overtaken.
func (c trial) earlyOutlook() []outlook {
	if c.early() && c.lossy() && c.reach() == decided {
		return []outlook{{false}}
	}
	return nil
}

// Matrix: PO-09, FT-01, FT-02, FT-03, FT-04, FT-05, FT-06, FT-07, FT-08, FT-09, FT-10, FT-11, FT-12, FT-13, FT-14
// Matrix: FT-15, FT-16, FT-17, FT-18, FT-19, FT-20, FT-21, FT-22, FT-23, FT-24, FT-25, FT-28, INV-01, INV-02
// Matrix: V1-10, V1-11
func TestEveryFaultEverywhereEndsByTheRules(t *testing.T) {
	drivertest.LeavesNothing(t)
	// Plain frames in both revisions, all other modes and msgr1 more thinly; half under the race detector.
	all := productOf(allVariants)
	plain := slices.IndexFunc(all, func(c trial) bool { return c.v == allVariants[len(variants)] })
	strides := [3]int{13, 73, 61}
	if steplock.Enabled { // the race detector makes them slower
		strides = [3]int{29, 149, 127}
	}
	trials := slices.Concat(sampleOf(t, all[:plain], strides[0]), sampleOf(t, all[plain:], strides[1]),
		sampleOf(t, productOf(msgr1Variants), strides[2]))
	spread(t, 24, len(trials), func(i int) string { return trials[i].name() },
		func(t *testing.T, i int) { trials[i].run(t) })
}

// keeper has the acceptor send keepalives, as the connector does, but not
// before the connector is ready.
func keeper() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(c *control.Conn, _ *control.Message) bool {
		c.Keepalive()
		return false
	}}
}

// limits are the limits of both sides. Only the stalls of the data phase have to
// wait for one.
func (c trial) limits(cfg *nodetest.NodeConfig) {
	cfg.Timeouts.Handshake = handshakeLimit
	if c.how == byStall && c.inData() {
		watchful(cfg)
	}
}

// handshakeLimit is longer than any trial.
const handshakeLimit = 2 * sessionTime

func (c trial) run(t *testing.T) {
	w := &duet{t: t, ctx: deadline(t), lossy: c.lossy(), v: c.v}
	// In msgr1 nothing tells a connector that has never heard of its session from one that
	// has forgotten it.
	w.forgets = c.v.msgr1 && c.reach() == decided && shortPolicies[c.acceptor]().ResetCheck
	if c.early() && !c.lossy() && shortPolicies[c.acceptor]().ResetCheck {
		w.forgets, w.mayForget = true, true
	}
	var clocks [2]testClock
	// The acceptor has the higher address: what the connector dials wins.
	w.acceptor = nodeOf(t, c.v, "osd.1", c.acceptor, 3, withChain(keeper(), echoer()), c.limits,
		clocks[nodetest.Acceptor].of)
	w.connector = nodeOf(t, c.v, connectorName(c.connector), c.connector, 2, c.limits, clocks[nodetest.Connector].of)
	subject := w.side(c.role)
	var theirs *nodetest.Break
	if c.resumes() {
		// The acceptor's own attempt to resume stays out of the way.
		theirs = w.acceptor.Probe.Arm(nodetest.SocketConnecting(), 1, nodetest.Block())
		before := nodetest.Write(frame.TagMessage)
		if c.role == nodetest.Acceptor {
			before = nodetest.Read(frame.TagMessage)
		}
		subject.Probe.Arm(before, 1, nodetest.Fault())
	}
	b := subject.Probe.Arm(c.at, 1, c.how)
	w.dial()
	w.talkUntil(b)
	if theirs != nil {
		theirs.Forget()
	}
	switch {
	case c.how == byStall && c.inData():
		timer := time.AfterFunc(2*stallDeadline, b.Release)
		defer timer.Stop()
	case c.how == byStall:
		clocks[c.role].press(func(d time.Duration) bool { return d == handshakeLimit })
	}
	w.await(nodetest.Connector, c.outlook(nodetest.Connector))
	w.await(nodetest.Acceptor, c.outlook(nodetest.Acceptor), c.earlyOutlook()...)
	w.finish()
}

func connectorName(policy string) string {
	if policy == "LC" || policy == "LLC" {
		return "client.2"
	}
	return "osd.2"
}

// What becomes of a session whose peer is gone: killed, frozen, or restarted.

// watchful has a node notice a peer that is silent.
func watchful(c *nodetest.NodeConfig) {
	c.Timeouts.KeepaliveEvery, c.Timeouts.Keepalive = stallDeadline/8, stallDeadline
}

// duet is a connector that sends and an acceptor that echoes, over whatever
// happens to their connection. What was sent is compared with what arrived at
// the end.
type duet struct {
	t                   *testing.T
	ctx                 context.Context
	lossy               bool
	forgets             bool // the acceptor is told that the connector has forgotten the session
	mayForget           bool // or it is not
	v                   variant
	size                int // of the front of every message
	connector, acceptor *nodetest.Node
	conn                *control.Conn
	sent                []uint64 // transaction ids, in order
	next                uint64
}

func (w *duet) side(r nodetest.Role) *nodetest.Node {
	if r == nodetest.Acceptor {
		return w.acceptor
	}
	return w.connector
}

// dial begins, with a message that waits for the session.
func (w *duet) dial() {
	w.conn = w.connector.Dial(w.acceptor)
	w.say(1)
	w.conn.Keepalive()
}

// say sends a message. Those below 1000 are echoed.
func (w *duet) say(tid uint64) bool {
	m := numbered(tid, control.NewMessage(1, w.front(tid), nil))
	if err := w.conn.Send(m); err != nil {
		m.Release()
		if !w.lossy || !errors.Is(err, control.ErrClosed) {
			w.t.Fatalf("send: %v", err)
		}
		return false
	}
	w.sent = append(w.sent, tid)
	return true
}

// talkUntil sends messages of both kinds, one at a time, until the break is
// reached: with pauses, so that acknowledgements travel alone as well.
func (w *duet) talkUntil(b *nodetest.Break) {
	w.next = 2
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-b.Hit():
			return
		case <-w.ctx.Done():
			w.t.Fatalf("%v: not reached\nconnector:\n%s\nacceptor:\n%s", b, w.connector.Probe.Trace(),
				w.acceptor.Probe.Trace())
		case <-tick.C:
		}
		// A session in standby waits for something to send.
		if s := w.conn.State(); s != control.StateReady && s != control.StateStandby || w.next > 990 {
			continue
		}
		// Most rounds get no answer but an acknowledgement.
		if w.next%4 == 0 {
			w.say(w.next)
			w.conn.Keepalive()
		}
		w.say(w.next + 5000)
		w.next++
	}
}

// await waits until the connections of a side are as they must be, or as they may be. A session
// that lives is ready, or in standby, from where the last message of finish
// wakes it.
func (w *duet) await(r nodetest.Role, want outlook, or ...outlook) {
	w.t.Helper()
	n := w.side(r)
	var have []nodetest.Life
	forgotten := 0
	if w.forgets && r == nodetest.Acceptor {
		forgotten = 1
	}
	ok := func() bool {
		have = n.Inbox.Lives()
		var got outlook
		for _, l := range have {
			state := l.Conn.State()
			switch {
			case state == control.StateClosing && l.Resets == 1 && l.RemoteResets == 0:
				got = append(got, true)
			case (state == control.StateReady || state == control.StateStandby) && l.Resets == 0 &&
				(l.RemoteResets == forgotten || w.mayForget && l.RemoteResets <= forgotten):
				got = append(got, false)
			default:
				return false
			}
		}
		// Each connection has had an event, and each other socket is gone.
		if st, err := n.Stats(); err != nil || st.HalfOpen != 0 || st.Counters.Conns != uint64(len(have)) {
			return false
		}
		return slices.Equal(got, want) || slices.ContainsFunc(or, func(o outlook) bool { return slices.Equal(got, o) })
	}
	if err := msgrtest.Until(w.ctx, ok); err != nil {
		w.t.Fatalf("%v: %v, want (over) %v, have %+v\n%s", r, err, want, have, n.Probe.Trace())
	}
}

// intact compares what arrived byte for byte with what was sent (INV-12).
func (w *duet) intact() {
	w.t.Helper()
	for _, m := range w.acceptor.Inbox.Messages() {
		if m.Front != string(w.front(m.TID)) {
			w.t.Errorf("message %d arrived with %d other bytes", m.TID, len(m.Front))
		}
	}
}

// front is what a message carries.
func (w *duet) front(tid uint64) []byte { return bytes.Repeat([]byte{byte(tid)}, w.size) }

// finish compares what was sent with what arrived.
func (w *duet) finish() {
	w.t.Helper()
	defer w.intact()
	if w.conn.State() == control.StateClosing {
		w.atMostOnce(w.acceptor.Inbox.TIDs(), w.sent)
		w.atMostOnce(w.connector.Inbox.TIDs(), echoes(w.sent))
		return
	}
	w.say(999)
	w.exactly(w.acceptor, w.sent)
	w.exactly(w.connector, echoes(w.sent))
	for _, n := range []*nodetest.Node{w.connector, w.acceptor} {
		conns := n.Conns()
		live := conns[len(conns)-1]
		if err := live.WaitReady(w.ctx); err != nil {
			w.t.Fatalf("%s: %v", n.Name(), err)
		}
		settled(w.t, w.ctx, live)
		w.v.check(w.t, live)
		if len(conns) != 1 {
			w.t.Errorf("%s has %d connections, want 1", n.Name(), len(conns))
		}
	}
}

func (w *duet) exactly(n *nodetest.Node, want []uint64) {
	w.t.Helper()
	if err := n.Inbox.Await(w.ctx, want...); err != nil {
		w.t.Fatalf("%s: %v\nconnector:\n%s\nacceptor:\n%s", n.Name(), err, w.connector.Probe.Trace(),
			w.acceptor.Probe.Trace())
	}
}

// atMostOnce: what arrived is a beginning of what was sent (INV-02).
func (w *duet) atMostOnce(got, sent []uint64) {
	w.t.Helper()
	if len(got) > len(sent) || !slices.Equal(got, sent[:len(got)]) {
		w.t.Errorf("received %v of %v, want a beginning of it", got, sent)
	}
}

func echoes(sent []uint64) (out []uint64) {
	for _, tid := range sent {
		if tid < 1000 {
			out = append(out, tid+1000)
		}
	}
	return out
}
