package control_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// How many connections of a source may come to nothing, as sockets see it.

// theirs is the address of those whose connections come to nothing.
var theirs = netip.MustParseAddr("127.0.1.66")

// rated is a server at which two of a source may come to nothing, and one in a second.
func rated(t *testing.T, v variant) (*nodetest.Node, *handClock) {
	clock := newHandClock()
	return nodeOf(t, v, "osd.1", "SLS", 1, clock.of, func(c *nodetest.NodeConfig) {
		c.Door.FailureRate, c.Door.FailureBurst = 1, 2
	}), clock
}

// peerOf is a peer of the address theirs.
func peerOf(t *testing.T, ctx context.Context, v variant, to *nodetest.Node, number uint64) *msgrtest.Peer {
	t.Helper()
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
		Name: wire.EntityName{Type: wire.Client, ID: "bad"}, From: theirs, Rev0: v.rev0,
		Addr: wire.Addr{Type: wire.AddrAny, Nonce: uint32(number), AddrPort: netip.AddrPortFrom(theirs, 0)},
	}, to.Addr)
	t.Cleanup(p.Close)
	return p
}

// nothings are ways in which a connection comes to nothing.
var nothings = map[string]func(t *testing.T, ctx context.Context, v variant, server *nodetest.Node, i int){
	"another protocol": func(t *testing.T, ctx context.Context, _ variant, server *nodetest.Node, i int) {
		c := silence(t, ctx, theirs.String(), server.Addr.AddrPort, 1)[0]
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\n")); err != nil {
			t.Fatal(err)
		}
		eventually(t, ctx, "the failure", func() bool { return failures(server) == uint64(i) })
	},
	"a session of no use": func(t *testing.T, ctx context.Context, v variant, server *nodetest.Node, i int) {
		p := peerOf(t, ctx, v, server, uint64(i))
		p.Establish(0, uint64(i))
		if err := p.Err(); err != nil {
			t.Fatal(err)
		}
		p.Close()
		eventually(t, ctx, "its end", func() bool {
			st, err := server.Stats()
			return err == nil && st.Counters.Closed == uint64(i)
		})
	},
}

func failures(n *nodetest.Node) uint64 {
	st, _ := n.Stats()
	return st.Counters.AcceptFailures
}

func waited(n *nodetest.Node) uint64 {
	st, _ := n.Stats()
	return st.Counters.Door.Waited
}

// Matrix: HI-15
func TestASourceWhoseConnectionsComeToNothingWaitsForItsTurn(t *testing.T) {
	for name, comeToNothing := range nothings {
		t.Run(name, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				server, clock := rated(t, v)
				for i := range 2 {
					comeToNothing(t, ctx, v, server, i+1)
				}
				if n := waited(server); n != 0 {
					t.Fatalf("%d have waited before", n)
				}
				late := peerOf(t, ctx, v, server, 9)
				eventually(t, ctx, "the peer that waits", func() bool { return waited(server) == 1 })
				honest := nodeOf(t, v, "client.2", "LC", 2)
				if err := honest.Dial(server, control.Once()).WaitReady(ctx); err != nil {
					t.Errorf("another source: %v", err)
				}
				eventually(t, ctx, "one that is half open", func() bool {
					st, err := server.Stats()
					return err == nil && st.HalfOpen == 1
				})
				clock.pass(time.Second)
				late.Establish(0, 9)
				if err := late.Err(); err != nil {
					t.Errorf("the one that has waited: %v", err)
				}
			})
		})
	}
}

// takeover is a server with a session that its peer takes over with socket after socket.
type takeover struct {
	t      *testing.T
	ctx    context.Context
	v      variant
	server *nodetest.Node
	clock  *handClock
	cookie uint64
	p      *msgrtest.Peer // the last socket
	n      uint64         // sockets
}

func newTakeover(t *testing.T, ctx context.Context, v variant) *takeover {
	o := &takeover{t: t, ctx: ctx, v: v, clock: newHandClock()}
	o.server = nodeOf(t, v, "osd.1", "SFS", 1, o.clock.of, func(c *nodetest.NodeConfig) {
		c.Door.FailureRate, c.Door.FailureBurst = 1, 2
	})
	o.p = peerOf(t, ctx, v, o.server, 1)
	o.cookie = o.p.Establish(7, 1).Cookie
	return o
}

// again takes the session over.
func (o *takeover) again() error {
	o.n++
	o.p = peerOf(o.t, o.ctx, o.v, o.server, 1)
	o.p.Handshake()
	o.p.SendPayload(frame.TagSessionReconnect, o.p.SessionReconnect(7, o.cookie, 1+o.n, o.n, 0))
	o.p.ExpectReconnectOK()
	return o.p.Err()
}

func TestSocketsThatTakeASessionOverWithoutUseAreFailures(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		o := newTakeover(t, ctx, v)
		for range 2 {
			if err := o.again(); err != nil {
				t.Fatal(err)
			}
		}
		if n := waited(o.server); n != 0 {
			t.Fatalf("%d have waited before", n)
		}
		done := make(chan error, 1)
		go func() { done <- o.again() }()
		eventually(t, ctx, "the socket that waits", func() bool { return waited(o.server) == 1 })
		o.clock.pass(time.Second)
		if err := <-done; err != nil {
			t.Errorf("the one that has waited: %v", err)
		}
	})
}

func TestSocketsThatTakeASessionOverWithUseAreNone(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		o := newTakeover(t, ctx, v)
		var all []uint64
		for i := range uint64(5) {
			o.p.SendMessage(frame.MessageHeader{Seq: i + 1, TID: i + 1}, nil, nil, nil)
			all = append(all, i+1)
			receives(t, ctx, o.server, all...)
			if err := o.again(); err != nil {
				t.Fatal(err)
			}
		}
		if n := waited(o.server); n != 0 {
			t.Errorf("%d have waited", n)
		}
	})
}

func TestASessionThatWasOfUseIsNoFailure(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server, _ := rated(t, v)
		var all []uint64
		for i := range 6 {
			p := peerOf(t, ctx, v, server, uint64(i+1))
			p.Establish(0, uint64(i+1))
			p.SendMessage(frame.MessageHeader{Seq: 1, TID: uint64(i + 1)}, nil, nil, nil)
			all = append(all, uint64(i+1))
			receives(t, ctx, server, all...)
			if p.Close(); p.Err() != nil {
				t.Fatal(p.Err())
			}
			eventually(t, ctx, "its end", func() bool {
				st, err := server.Stats()
				return err == nil && st.Counters.Closed == uint64(i+1)
			})
		}
		if n := waited(server); n != 0 {
			t.Errorf("%d have waited", n)
		}
	})
}

func TestWhoWaitsForItsTurnIsEndedByShutdown(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server, _ := rated(t, v)
		for i := range 2 {
			nothings["another protocol"](t, ctx, v, server, i+1)
		}
		late := peerOf(t, ctx, v, server, 9)
		eventually(t, ctx, "the peer that waits", func() bool { return waited(server) == 1 })
		if err := server.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		late.ExpectEnd()
		if err := late.Err(); err != nil {
			t.Error(err)
		}
		eventually(t, ctx, "its place", func() bool {
			st, _ := server.Stats() // its error says that the cores are down
			return st.HalfOpen == 0
		})
	})
}
