package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// faultCase is a fault at each of some break points of one side, and what must
// come of it: one line for each connection object of that side.
type faultCase struct {
	id     string
	own    string // policy of the side under test
	peer   string
	role   msgrtest.Role
	before string // a fault that comes first
	points string // one run for each
	silent bool   // no echo: the connector sends, the acceptor only receives
	greets bool   // the acceptor sends first, the connector nothing
	pings  bool   // keepalives of both sides
	lost   bool   // the message may be lost
	want   []string
}

const (
	connectPoints = "SOCKET_CONNECTING BANNER_WRITE BANNER_READ BANNER_PAYLOAD_READ HELLO_WRITE HELLO_READ " +
		"AUTH_REQUEST_WRITE AUTH_DONE_READ AUTH_SIGNATURE_WRITE AUTH_SIGNATURE_READ"
	acceptPoints = "BANNER_WRITE BANNER_READ BANNER_PAYLOAD_READ HELLO_WRITE HELLO_READ " +
		"AUTH_REQUEST_READ AUTH_DONE_WRITE AUTH_SIGNATURE_WRITE AUTH_SIGNATURE_READ"
)

var faultCases = []faultCase{
	{id: "FT-01", own: "LC", peer: "SLS", points: connectPoints, want: []string{"established C(2,1,0,1)"}},
	{id: "FT-02", own: "LC", peer: "SLS", points: "CLIENT_IDENT_WRITE SERVER_IDENT_READ", want: []string{"established C(2,2,0,1)"}},
	{id: "FT-03", own: "LC", peer: "SLS", points: "MESSAGE_WRITE MESSAGE_READ", lost: true, want: []string{"closed C(1,1,0,1) R(1,0)"}},

	{id: "FT-04", own: "SLS", peer: "LC", role: msgrtest.Acceptor, points: acceptPoints,
		want: []string{"closed A(1,0,0,0)", "established A(1,1,0,1)"}},
	{id: "FT-05", own: "SLS", peer: "LC", role: msgrtest.Acceptor, points: "CLIENT_IDENT_READ",
		want: []string{"closed A(1,1,0,0)", "established A(1,1,0,1)"}},
	{id: "FT-06", own: "SLS", peer: "LC", role: msgrtest.Acceptor, points: "SERVER_IDENT_WRITE",
		want: []string{"closed A(1,1,0,1) R(1,0)", "established A(1,1,0,1)"}},
	{id: "FT-07", own: "SLS", peer: "LC", role: msgrtest.Acceptor, points: "MESSAGE_WRITE MESSAGE_READ", lost: true,
		want: []string{"closed A(1,1,0,1) R(1,0)"}},

	{id: "FT-08", own: "LLC", peer: "SFS", points: "CLIENT_IDENT_WRITE SERVER_IDENT_READ", want: []string{"established C(2,2,0,1)"}},
	{id: "FT-09", own: "LLC", peer: "SFS", points: "MESSAGE_WRITE MESSAGE_READ", want: []string{"established C(2,1,1,2)"}},
	{id: "FT-10", own: "LLC", peer: "SFS", points: "ACK_READ", silent: true, want: []string{"established C(2,1,1,2)"}},
	{id: "FT-10", own: "LLC", peer: "SFS", points: "ACK_WRITE", want: []string{"established C(2,1,1,2)"}},
	{id: "FT-10", own: "LLC", peer: "SFS", pings: true, points: "KEEPALIVE2_READ KEEPALIVE2_WRITE KEEPALIVE2_ACK_READ KEEPALIVE2_ACK_WRITE",
		want: []string{"established C(2,1,1,2)"}},
	{id: "FT-11", own: "LLC", peer: "SFS", before: "MESSAGE_WRITE", points: "SESSION_RECONNECT_WRITE SESSION_RECONNECT_OK_READ",
		want: []string{"established C(3,1,2,2)"}},

	{id: "FT-12", own: "SFS", peer: "LLC", role: msgrtest.Acceptor, points: "CLIENT_IDENT_READ",
		want: []string{"closed A(1,1,0,0)", "established A(1,1,0,1)"}},
	{id: "FT-13", own: "SFS", peer: "LLC", role: msgrtest.Acceptor, points: "SERVER_IDENT_WRITE",
		want: []string{"established A(1,1,0,2)", "replaced A(1,1,0,0)"}},
	{id: "FT-14", own: "SFS", peer: "LLC", role: msgrtest.Acceptor, points: "MESSAGE_WRITE MESSAGE_READ",
		want: []string{"established A(1,1,0,2)", "replaced A(1,0,1,0)"}},
	{id: "FT-15", own: "SFS", peer: "LLC", role: msgrtest.Acceptor, before: "MESSAGE_READ", points: "SESSION_RECONNECT_READ",
		want: []string{"established A(1,1,0,2)", "closed A(1,0,1,0)", "replaced A(1,0,1,0)"}},
	{id: "FT-16", own: "SFS", peer: "LLC", role: msgrtest.Acceptor, before: "MESSAGE_READ", points: "SESSION_RECONNECT_OK_WRITE",
		want: []string{"established A(1,1,0,3)", "replaced A(1,0,1,0)", "replaced A(1,0,1,0)"}},
}

// peerCases are FT-17 to FT-21, and with resetcheck FT-22.
func peerCases(policy string) []faultCase {
	return []faultCase{
		{id: "FT-17", own: policy, peer: policy, points: "CLIENT_IDENT_WRITE SERVER_IDENT_READ", silent: true, want: []string{"established C(2,2,0,1)"}},
		{id: "FT-18", own: policy, peer: policy, role: msgrtest.Acceptor, points: "CLIENT_IDENT_READ", silent: true,
			want: []string{"closed A(1,1,0,0)", "established A(1,1,0,1)"}},
		{id: "FT-19", own: policy, peer: policy, role: msgrtest.Acceptor, points: "SERVER_IDENT_WRITE", silent: true,
			want: []string{"established A(1,1,0,2)", "replaced A(1,1,0,0)"}},
		{id: "FT-20", own: policy, peer: policy, points: "MESSAGE_WRITE", silent: true, want: []string{"established C(2,1,1,2)"}},
		{id: "FT-21", own: policy, peer: policy, points: "MESSAGE_READ", greets: true,
			want: []string{"established C(1,1,0,1) A(0,0,0,1)", "replaced A(1,0,1,0)"}},
	}
}

func TestFaultAtABreakPointEndsByTheRules(t *testing.T) {
	msgrtest.CheckLeaks(t)
	type run struct {
		c  faultCase
		at msgrtest.Point
		v  variant
	}
	var runs []run
	for _, c := range append(append(faultCases, peerCases("LP")...), peerCases("LPR")...) {
		for _, v := range modesFor(t) {
			at := points(c.points)
			if c.points == connectPoints || c.points == acceptPoints {
				at = append(at, v.furtherPoints(c.role)...)
			}
			for _, at := range at {
				runs = append(runs, run{c, at, v})
			}
		}
	}
	name := func(i int) string {
		r := runs[i]
		return title(r.c.id, r.c.own, msgrtest.PointName(r.at), r.v)
	}
	spread(t, 8, len(runs), name, func(t *testing.T, i int) { runs[i].c.run(t, runs[i].v, runs[i].at) })
}

func (c faultCase) run(t *testing.T, v variant, at msgrtest.Point) {
	ctx := deadline(t)
	var chain []*control.Dispatcher
	switch {
	case c.greets:
		chain = append(chain, greeter(7))
	case !c.silent:
		chain = append(chain, echoer())
	}
	acceptorPolicy, connectorPolicy := c.peer, c.own
	if c.role == msgrtest.Acceptor {
		acceptorPolicy, connectorPolicy = c.own, c.peer
	}
	acceptor := nodeOf(t, v, "osd.1", acceptorPolicy, 1, withChain(chain...))
	connector := nodeOf(t, v, connectorName(connectorPolicy), connectorPolicy, 2)
	subject := connector
	if c.role == msgrtest.Acceptor {
		subject = acceptor
	}
	if c.before != "" {
		subject.Probe.Arm(msgrtest.MustPoint(c.before), 1, msgrtest.Fault())
	}
	b := subject.Probe.Arm(at, 1, msgrtest.Fault())

	conn := connector.Dial(acceptor)
	if !c.greets {
		send(t, conn, 1)
	}
	if c.pings {
		conn.Keepalive()
		first(t, ctx, acceptor).Keepalive()
	}
	subject.Hit(ctx, b)
	subject.Await(ctx, c.want...)
	switch {
	case c.lost:
		// Both ends are over, each with one event.
		for _, n := range []*msgrtest.Node{connector, acceptor} {
			objects := n.Probe.Objects()
			if len(objects) != 1 || objects[0].End != msgrtest.Closed || objects[0].Resets != 1 {
				if err := awaitClosed(ctx, n); err != nil {
					t.Error(err)
				}
			}
		}
	case c.greets:
		receives(t, ctx, connector, 7)
	case c.silent:
		receives(t, ctx, acceptor, 1)
	default:
		receives(t, ctx, acceptor, 1)
		receives(t, ctx, connector, 1001)
	}
}

// awaitClosed waits until the only object of a node is over, with an event.
func awaitClosed(ctx context.Context, n *msgrtest.Node) error {
	return n.Probe.Await(ctx, "closed C(*,*,*,*) A(*,*,*,*) R(1,0)")
}

func connectorName(policy string) string {
	if policy == "LC" || policy == "LLC" {
		return "client.2"
	}
	return "osd.2"
}

// FT-23: the acceptor dies before SERVER_IDENT, and both sides have something
// to say. With a peer policy the acceptor comes back by itself.
func TestNothingIsLostOrDoubledWhenTheServerDiesBeforeItsIdent(t *testing.T) {
	for _, pair := range [][2]string{{"LLC", "SFS"}, {"LP", "LP"}, {"LPR", "LPR"}} {
		t.Run(pair[0], func(t *testing.T) {
			everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
				acceptor := nodeOf(t, v, "osd.1", pair[1], 1, withChain(greeter(7)))
				connector := nodeOf(t, v, connectorName(pair[0]), pair[0], 2, func(c *msgrtest.NodeConfig) {
					if pair[0] != "LLC" {
						// The second attempt stays out of the way: the acceptor has
						// to come back by itself.
						c.InitialBackoff, c.MaxBackoff = time.Hour, time.Hour
					}
				})
				acceptor.Probe.Arm(msgrtest.Write(frame.TagServerIdent), 1, msgrtest.Fault())
				conn := connector.Dial(acceptor)
				send(t, conn, 1)
				receives(t, ctx, acceptor, 1)
				receives(t, ctx, connector, 7)
				if pair[0] == "LLC" {
					connector.Await(ctx, "established C(2,2,0,1)")
				} else {
					connector.Await(ctx, "established C(1,1,0,0) A(0,0,0,1)", "replaced A(1,1,1,0)")
				}
			})
		})
	}
}

// FT-24: a fault while a message is being handled, by its handler.
func TestFaultInsideAHandlerCostsOneReconnect(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1, withChain(echoer()))
		var connector *msgrtest.Node
		ready := make(chan struct{})
		connector = nodeOf(t, v, "client.2", "LLC", 2, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			<-ready
			if m.TID == 1001 {
				connector.Probe.ArmNext(msgrtest.Write(frame.TagMessage), msgrtest.Fault())
				again := control.NewMessage(1, nil, nil)
				again.TID = 2
				if c.Send(again) != nil {
					t.Error("send inside the handler failed")
				}
			}
			return true
		}}))
		close(ready)
		send(t, connector.Dial(acceptor), 1)
		receives(t, ctx, acceptor, 1, 2)
		receives(t, ctx, connector, 1001, 1002)
		connector.Await(ctx, "established C(2,1,1,2)")
		if n := connector.Probe.Seen(msgrtest.Read(frame.TagSessionReconnectOK)); n != 1 {
			t.Errorf("%d SESSION_RECONNECT_OK, want 1", n)
		}
	})
}

// A first attempt that fails is followed by the back-off, whatever was queued
// while it was under way.
func TestRefusedAttemptBacksOffWithMessagesQueued(t *testing.T) {
	for _, policy := range []string{"LC", "LLC", "LP", "LPR"} {
		t.Run(policy, func(t *testing.T) {
			everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
				at := wire.Addr{Type: wire.AddrMsgr2, AddrPort: msgrtest.ReservePort(t)}
				n := nodeOf(t, v, connectorName(policy), policy, 2, func(c *msgrtest.NodeConfig) {
					c.InitialBackoff, c.MaxBackoff = time.Hour, time.Hour
				})
				b := n.Probe.Arm(msgrtest.SocketConnecting(), 1, msgrtest.Block())
				conn, err := n.Connect(at, wire.OSD)
				if err != nil {
					t.Fatal(err)
				}
				n.Hit(ctx, b)
				send(t, conn, 1)
				b.Release()
				n.Await(ctx, "wait C(1,0,0,0)")
			})
		})
	}
}

// A break point that holds a socket in the data phase has no say over the next
// one.
func TestHoldEndsWithItsSocket(t *testing.T) {
	everyModeAndProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		short := func(c *msgrtest.NodeConfig) {
			c.KeepaliveEvery, c.KeepaliveTimeout = 50*time.Millisecond, 400*time.Millisecond
		}
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1, short)
		connector := nodeOf(t, v, "client.2", "LLC", 2, short)
		connector.Probe.Arm(msgrtest.Write(frame.TagMessage), 1, msgrtest.Block())
		send(t, connector.Dial(acceptor), 1)
		receives(t, ctx, acceptor, 1)
	})
}
