package control_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// What is different in msgr1, or between the two protocols. What is alike runs for both
// in the other tests (everyProtocol).

// everyMsgr1 is everyVariant for the older protocol.
func everyMsgr1(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, msgr1Variants, run)
}

// A messenger has both protocols, each at its address. A session is in one of them: a
// process that comes by the other one gets a new one in its place.
// Matrix: V1-09, V1-12
func TestMsgr1AndMsgr2AtOneMessenger(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		both := func(c *nodetest.NodeConfig) {
			c.Bind = wire.AddrVec{v2(loopback(0).Addr(), 0), v2(loopback(0).Addr(), 0).WithType(wire.AddrLegacy)}
			c.Plane.Cores = 2
		}
		server := nodeOf(t, v, "osd.1", "LP", 1, both, withChain(echoer()))
		addrs := server.Addrs()
		if len(addrs) != 2 || addrs[0] != addrs.V2() || addrs[1] != addrs.V1() {
			t.Fatalf("bound to %v", addrs)
		}
		peer := nodeOf(t, v, "osd.2", "LP", 2, both)
		protocolOf := func(c *control.Conn, want string) {
			t.Helper()
			must(t, c.WaitReady(ctx))
			if got := c.Info().Protocol; got != want {
				t.Errorf("connection to %v speaks %s", addrs, got)
			}
		}
		first, err := peer.ConnectTo(wire.AddrVec{addrs[1], addrs[0]}, wire.OSD)
		must(t, err)
		send(t, first, 1)
		receives(t, ctx, peer, 1001)
		protocolOf(first, "msgr2.1")
		at := server.Lookup(peer.Addrs().V2())
		if at == nil || !at.Info().PeerAddrs.Equal(peer.Addrs()) {
			t.Fatalf("the server has %v for the peer", at)
		}

		second, err := peer.ConnectTo(wire.AddrVec{addrs[1]}, wire.OSD)
		must(t, err)
		send(t, second, 2)
		receives(t, ctx, peer, 1001, 1002)
		protocolOf(second, control.Msgr1)
		eventually(t, ctx, "the end of the session of msgr2", func() bool { return at.State() == control.StateClosing })
		if !errors.Is(at.Err(), control.ErrReplaced) {
			t.Errorf("the session of msgr2 has ended with %v", at.Err())
		}
		now1 := server.Lookup(peer.Addrs().V1())
		if now1 == nil || now1.Info().Protocol != control.Msgr1 || now1.Auth().Entity != osd("2") || second.Auth().Entity != osd("2") {
			t.Errorf("the server has %v for the v1 address of the peer, which is %+v", now1, second.Auth())
		}
		first.MarkDown()

		if _, err := peer.ConnectTo(wire.AddrVec{{Type: wire.AddrAny}}, wire.OSD); !errors.Is(err, control.ErrConfig) {
			t.Errorf("without an address: %v", err)
		}
		if self, err := server.Connect(addrs[1], wire.OSD); err != nil || !self.IsLoopback() {
			t.Errorf("our own v1 address: %v, %v", self, err)
		}
		old := server.Addrs()
		now, err := server.Rebind(ctx)
		must(t, err)
		if len(now) != 2 || now[0].Type != wire.AddrMsgr2 || now[1].Type != wire.AddrLegacy || now[1].AddrPort == old[1].AddrPort {
			t.Errorf("bound to %v, was %v", now, old)
		}
		second.MarkDown()
		third := connect(t, peer, now[1], wire.OSD)
		send(t, third, 3)
		receives(t, ctx, peer, 1001, 1002, 1003)
	})
}

// Who speaks the other protocol, or means another process, is told apart at once.
func TestMsgr1AtTheWrongAddressEndsInAnError(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SLS", 1)
		client := nodeOf(t, v, "client.2", "LC", 2)
		for _, one := range []struct {
			to    wire.Addr
			peer  wire.EntityType
			stage control.Stage
			about string
		}{
			{server.Addr.WithType(wire.AddrMsgr2), wire.OSD, control.StageBanner, "v1 address"},
			{server.Addr.WithNonce(7), wire.OSD, control.StageHello, "nonce"},
			{server.Addr, wire.Mon, control.StageIdent, ""},
		} {
			c := connect(t, client, one.to, one.peer, control.Once(), control.Anonymous())
			err := c.WaitReady(ctx)
			var e *control.Error
			if !errors.As(err, &e) || e.Stage != one.stage || !strings.Contains(e.Advice(), one.about) {
				t.Errorf("%v as %v: %v", one.to, one.peer, err)
			}
		}
		plain := nodeOf(t, variants[0], "osd.3", "SLS", 3)
		c := connect(t, client, plain.Addr.WithType(wire.AddrLegacy), wire.OSD, control.Once())
		var e *control.Error
		if err := c.WaitReady(ctx); !errors.As(err, &e) || !strings.Contains(e.Advice(), "v2 address") {
			t.Errorf("msgr1 at a v2 address: %v", err)
		}
		wrong := connect(t, client, server.Addr.WithNonce(8), wire.OSD)
		if err := wrong.WaitReady(ctx); !errors.Is(err, control.ErrStuck) {
			t.Errorf("another nonce again and again: %v", err)
		}
		secure := nodeOf(t, v, "client.4", "LC", 4, func(c *nodetest.NodeConfig) { c.Auth.Modes = []auth.Mode{auth.Secure} })
		if _, err := secure.Connect(server.Addr, wire.OSD); !errors.Is(err, control.ErrConfig) {
			t.Errorf("msgr1 where only mode secure is allowed: %v", err)
		}
		if _, err := secure.Bind(server.Addr.WithPort(0)); !errors.Is(err, control.ErrConfig) {
			t.Errorf("bound where only mode secure is allowed: %v", err)
		}
	})
}

// A connect message does not say whom it wants. Who was told an address of ours that is
// none any more wants nobody who is here now.
func TestMsgr1WhoWantsTheAddressBeforeARebindGetsNoSession(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "LP", 1)
		client := nodeOf(t, v, "osd.2", "LP", 2)
		b := server.Probe.Arm(nodetest.Point{Step: probe.ConnectRead}, 1, nodetest.Block())
		c := client.Dial(server)
		send(t, c, 1)
		server.Hit(ctx, b)
		_, err := server.Rebind(ctx)
		must(t, err)
		b.Release()
		eventually(t, ctx, "a failure", func() bool { return statsOf(t, server).Counters.AcceptFailures == 1 })
		if got := server.Inbox.TIDs(); len(got) > 0 || len(server.Conns()) > 0 {
			t.Errorf("messages %v, connections %v", got, server.Conns())
		}
	})
}

// A wildcard tells each peer of msgr1 the address by which it has come.
func TestMsgr1AWildcardIsReachedByEachAddress(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		n := nodeOf(t, v, "osd.1", "SLS", 1, func(c *nodetest.NodeConfig) {
			c.Bind = wire.AddrVec{{Type: wire.AddrLegacy, AddrPort: netip.MustParseAddrPort("0.0.0.0:0")}}
		})
		client := nodeOf(t, v, "client.2", "LC", 2)
		for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
			to := n.Addr
			to.AddrPort = netip.AddrPortFrom(netip.MustParseAddr(ip), n.Addr.AddrPort.Port())
			c := connect(t, client, to, wire.OSD)
			if err := c.WaitReady(ctx); err != nil {
				t.Errorf("%s: %v", ip, err)
			}
		}
	})
}

// refusing is a server of cephx that counts its exchanges, and refuses all peers.
type refusing struct {
	auth.Server
	begun atomic.Int32
}

func (*refusing) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{auth.Cephx}
}
func (*refusing) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return []auth.Mode{auth.CRC}, []auth.Mode{auth.CRC}
}
func (r *refusing) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	r.begun.Add(1)
	return nil, &auth.Refused{Errno: auth.EACCES}
}

// The authorizer of a peer that is refused for its features, as it knows no challenge, is not judged:
// somebody else may have shown it before.
func TestMsgr1JudgesNoAuthorizerOfAPeerThatKnowsNoChallenge(t *testing.T) {
	server := new(refusing)
	m := authMessenger(t, control.Config{Name: entity(t, "osd.1"), Auth: control.Auth{Server: server}}, echoAll())
	e := party{addr: bind(t, m, v2(loopback(0).Addr(), 0).WithType(wire.AddrLegacy))[0]}
	for _, features := range []wire.Features{wire.FeaturesPacific &^ wire1.FeatureCephxV2, wire.FeaturesPacific} {
		ask := wire1.Connect{
			Features: features, HostType: uint32(wire.Client), GlobalSeq: 1, Protocol: wire1.Protocol(wire.Client, wire.OSD),
			AuthMethod: uint32(auth.Cephx), AuthorizerLen: 100,
		}
		hello := wire1.ConnectorHello{Own: wire.Addr{Type: wire.AddrLegacy, Nonce: 9}}.AppendTo(nil)
		c := e.call(t)
		_, err := c.Write(append(ask.AppendTo(hello), make([]byte, 100)...))
		must(t, err)
		p := make([]byte, wire1.AcceptorHelloSize+wire1.ReplySize)
		_, err = io.ReadFull(c, p)
		must(t, err)
		r, err := wire1.DecodeReply(p[wire1.AcceptorHelloSize:])
		want, judged := wire1.TagFeatures, int32(0)
		if features.Has(wire1.FeatureCephxV2) {
			want, judged = wire1.TagBadAuthorizer, 1
		}
		if n := server.begun.Load(); err != nil || r.Tag != want || n != judged {
			t.Errorf("features %v: %v, %v, want %v; %d authorizers were judged", features, r.Tag, err, want, n)
		}
	}
}
