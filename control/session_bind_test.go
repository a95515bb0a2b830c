package control_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

var hosts atomic.Uint32

// ownHost is a loopback address that no other test has, so that all of its
// ports are free.
func ownHost() netip.Addr {
	n := uint32(os.Getpid())<<10 + hosts.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(2 + n>>16%250), byte(n >> 8), byte(1 + n%254)})
}

func v2(ip netip.Addr, port uint16) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(ip, port)}
}

// unboundOSD is a node with several cores that is not bound yet, and has the
// ports 6800 to 6800+n-1.
func unboundOSD(t *testing.T, v variant, cores, n int) *nodetest.Node {
	t.Helper()
	return nodeOf(t, v, "osd.1", "SFS", 1, func(c *nodetest.NodeConfig) {
		c.Unbound, c.Plane.Cores = true, cores
		c.Binding.Ports = bpf.PortRange{First: 6800, Last: uint16(6800 + n - 1)}
	})
}

// hold listens until the test ends.
func hold(t *testing.T, at netip.AddrPort) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at.String())
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A used port is an error, whoever has it and however many listeners we want there, and never
// joined. Of a range the next free port is taken.
// Matrix: SH-10
func TestBindTakesTheNextFreePortOfTheRange(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for cores := 1; cores <= 3; cores += 2 {
			host := ownHost()
			hold(t, netip.AddrPortFrom(host, 6800))
			bind(t, unboundOSD(t, v, 4-cores, 1), v2(host, 6802)) // another messenger has that one
			n := unboundOSD(t, v, cores, 4)
			_, err := n.Bind(v2(host, 7001), v2(host, 6800))
			if !errors.Is(err, control.ErrNoPort) || !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "6800") {
				t.Fatalf("%d cores: %v", cores, err)
			}
			// Two addresses of one host, and a fixed one, which is free again.
			addrs := bind(t, n, v2(host, 0), v2(host, 0), v2(host, 7001))
			for i, port := range []uint16{6801, 6803, 7001} {
				if want := v2(host, port).WithNonce(1); addrs[i] != want {
					t.Errorf("%d cores: address %d is %v, want %v", cores, i, addrs[i], want)
				}
			}
			n.Addr = addrs[1]
			client := nodeOf(t, v, "client.2", "LLC", 2)
			send(t, client.Dial(n), 1)
			receives(t, ctx, n, 1)

			// The range is exhausted now.
			late := unboundOSD(t, v, cores, 4)
			_, err = late.Bind(v2(host, 0))
			if !errors.Is(err, control.ErrNoPort) || !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "6800-6803, tried 1 times") {
				t.Fatalf("exhausted: %v", err)
			}
			bind(t, late, v2(host, 6900))
		}
	})
}

const portDelay = 1234 * time.Hour // no other timer has it

func isPortDelay(d time.Duration) bool { return d == portDelay }

// waitsForPorts has a node that is not bound try once more for a port that is in use.
func waitsForPorts(clock *testClock) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) {
		c.Unbound, c.Clock, c.Binding.Retries, c.Binding.RetryDelay = true, clock, 1, portDelay
	}
}

func TestShutdownEndsTheWaitForAPort(t *testing.T) {
	host := ownHost()
	hold(t, netip.AddrPortFrom(host, 6800))
	clock := &testClock{}
	n := nodeOf(t, variants[0], "osd.1", "SFS", 1, waitsForPorts(clock))
	bound := async(func() error { return onlyError(n.Bind(v2(host, 6800))) })
	happens(t, "the wait", func() bool { return clock.waiting(isPortDelay) })
	must(t, n.Shutdown(deadline(t)))
	wantError(t, "Bind", <-bound, control.ErrShutdown)
}

// The first of two addresses accepts while Bind waits for the port of the second one. A peer that
// comes there is not refused because the address is not ours yet.
// Matrix: SH-10
func TestAConnectionThatComesDuringBindIsServedAfterIt(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		host := ownHost()
		held := hold(t, netip.AddrPortFrom(host, 6801))
		clock := &testClock{}
		server := nodeOf(t, v, "osd.1", "SFS", 1, waitsForPorts(clock))
		bound := async(func() error { return onlyError(server.Bind(v2(host, 6800), v2(host, 6801))) })
		eventually(t, ctx, "the wait", func() bool { return clock.waiting(isPortDelay) })
		client := nodeOf(t, v, "client.2", "LLC", 2)
		conn := connect(t, client, v2(host, 6800).WithNonce(1), wire.OSD)
		for n := 1; n <= 16; n++ { // the others come so that the first one has time to go wrong
			eventually(t, ctx, "the server to accept", func() bool { return server.Probe.Seen(nodetest.SocketAccepted()) >= n })
			other, err := net.Dial("tcp", netip.AddrPortFrom(host, 6800).String())
			must(t, err)
			defer other.Close()
		}
		check(t, held.Close())
		clock.press(isPortDelay)
		must(t, <-bound)
		must(t, conn.WaitReady(ctx))
		if n := connStats(t, conn).Counters.Attempts; n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// A wildcard is reached by each of our addresses, also through a translation. It has the IP of our
// end of the first socket, and none that a peer says it has reached.
// Matrix: HS-12, IN-08
func TestAWildcardIsReachedByAnyAddressAndLearnsNoneFromAPeer(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := nodeOf(t, v, "osd.1", "SFS", 1, func(c *nodetest.NodeConfig) { c.Unbound = true })
		addrs := bind(t, us, v2(netip.IPv4Unspecified(), 0))
		at := func(ip string) wire.Addr { return v2(netip.MustParseAddr(ip), addrs[0].AddrPort.Port()).WithNonce(1) }
		own := at("127.0.0.1")
		for i, c := range []struct{ reaches, says string }{
			{"127.0.0.1", "6.6.6.6"}, {"127.0.0.1", "127.0.0.1"}, {"127.0.0.2", "127.0.0.2"}, {"127.0.0.1", "198.51.100.1"},
		} {
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: osd("2"), Number: 2, Addr: peerAddr(uint32(20 + i)), Reached: at(c.says), Rev0: v.rev0}, at(c.reaches))
			defer p.Close()
			if si := p.Establish(7, 1); p.Err() != nil || !si.Addrs.Contains(at(c.says)) || si.Addrs[0] != own {
				t.Errorf("%+v: told %v, %v", c, si.Addrs, p.Err())
			}
			if got := us.Addrs(); len(got) != 1 || got[0] != own {
				t.Errorf("%+v: we are %v, want %v", c, got, own)
			}
		}
	})
}

// mobile is a bound node that can be given other ports of its host, six of them.
func mobile(t *testing.T, v variant, name, policy string, nonce uint32, change ...func(*nodetest.NodeConfig)) *nodetest.Node {
	t.Helper()
	n := nodeOf(t, v, name, policy, nonce, append([]func(*nodetest.NodeConfig){func(c *nodetest.NodeConfig) {
		c.Unbound, c.Plane.Cores = true, 1+int(nonce)%3
		c.Policies = map[wire.EntityType]control.Policy{wire.Client: control.StatefulServer()}
		c.Binding.Ports = bpf.PortRange{First: 6800, Last: 6805}
	}}, change...)...)
	addrs := bind(t, n, v2(ownHost(), 0))
	n.Addr = addrs.V2()
	return n
}

// rebind must succeed.
func rebind(t *testing.T, ctx context.Context, n *nodetest.Node, avoid ...uint16) (old wire.Addr) {
	t.Helper()
	old = n.Addr
	addrs, err := n.Rebind(ctx, avoid...)
	must(t, err)
	n.Addr = addrs.V2()
	switch got := n.Addrs(); {
	case len(addrs) != 1 || len(got) != 1 || got[0] != addrs[0]:
		t.Errorf("Rebind returned %v, Addrs says %v", addrs, got)
	case n.Addr.AddrPort.Addr() != old.AddrPort.Addr(), n.Addr.AddrPort.Port() == old.AddrPort.Port(), n.Addr.Nonce == old.Nonce:
		t.Errorf("from %v to %v", old, n.Addr)
	}
	return old
}

// The port is another one of the range and none to be avoided, the nonce
// is another one, the old connections are down without a reset event, peers
// reach the new address and are told it.
// Matrix: SH-11
func TestRebindGivesAnotherAddress(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for cores := uint32(1); cores <= 3; cores++ {
			us := mobile(t, v, "osd.1", "LP", cores, withChain(echoer()))
			client := nodeOf(t, v, "client.7", "LLC", 7)
			peer := nodeOf(t, v, "osd.8", "LPR", 8)
			if port := us.Addr.AddrPort.Port(); port != 6800 {
				t.Fatalf("bound to %d", port)
			}
			theirs := client.Dial(us)
			send(t, theirs, 1)
			receives(t, ctx, client, 1001)
			ours := us.Dial(peer)
			send(t, ours, 2)
			receives(t, ctx, peer, 2)
			self := connect(t, us, us.Addr, wire.OSD)
			conns := us.Conns()
			if len(conns) != 3 {
				t.Fatalf("%d connections", len(conns))
			}

			old := rebind(t, ctx, us, 6801, 6803, 9999)
			if port := us.Addr.AddrPort.Port(); port != 6802 {
				t.Errorf("rebound to %d, want 6802", port)
			}
			for _, c := range conns {
				<-c.Closed()
				if !errors.Is(c.Err(), control.ErrRebound) || !errors.Is(c.Err(), control.ErrMarkedDown) || c.Send(control.NewMessage(1, nil, nil)) == nil {
					t.Errorf("connection %d: %v", c.ID(), c.Err())
				}
			}
			for _, l := range us.Inbox.Lives() {
				// Who comes back to the old address is refused.
				if l.Conn.State() != control.StateClosing || l.Resets+l.RemoteResets != 0 {
					t.Errorf("connection %d is %v: %+v", l.Conn.ID(), l.Conn.State(), l)
				}
			}
			if c, err := net.Dial("tcp", old.AddrPort.String()); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("the old address answers: %v, %v", c, err)
			}
			// Both ways, and to ourselves.
			theirs.MarkDown()
			again := client.Dial(us)
			send(t, again, 3)
			receives(t, ctx, client, 1001, 1003)
			ours = us.Dial(peer)
			send(t, ours, 4)
			receives(t, ctx, peer, 2, 4)
			if got := peer.Lookup(us.Addr); got == nil || !got.Info().PeerAddrs.Equal(us.Addrs()) {
				t.Errorf("the peer does not know us as %v", us.Addr)
			}
			if now, err := us.Connect(us.Addr, wire.OSD); err != nil || now == self || now.State() != control.StateReady {
				t.Errorf("loopback: %v, %v", now, err)
			}
			// The old ports are free for the next time.
			rebind(t, ctx, us)
			if port := us.Addr.AddrPort.Port(); port != 6800 {
				t.Errorf("rebound to %d, want 6800", port)
			}
		}
	})
}

// Shutdown and Rebind at the same time: both end, whoever is first.
func TestShutdownDuringARebindEnds(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for range 8 {
			us := mobile(t, v, "osd.1", "SFS", 2)
			rebound := async(func() error { return onlyError(us.Rebind(ctx)) })
			check(t, us.Shutdown(ctx))
			if err := <-rebound; err != nil && !errors.Is(err, control.ErrShutdown) {
				t.Errorf("rebind: %v", err)
			}
		}
	})
}

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
		wantError(t, "the session of msgr2 has ended", at.Err(), control.ErrReplaced)
		now1 := server.Lookup(peer.Addrs().V1())
		if now1 == nil || now1.Info().Protocol != control.Msgr1 || now1.Auth().Entity != osd("2") || second.Auth().Entity != osd("2") {
			t.Errorf("the server has %v for the v1 address of the peer, which is %+v", now1, second.Auth())
		}
		first.MarkDown()

		_, err = peer.ConnectTo(wire.AddrVec{{Type: wire.AddrAny}}, wire.OSD)
		wantError(t, "without an address", err, control.ErrConfig)
		if self, err := server.Connect(addrs[1], wire.OSD); err != nil || self.Core() != nil {
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
		wantError(t, "another nonce again and again", wrong.WaitReady(ctx), control.ErrStuck)
		secure := nodeOf(t, v, "client.4", "LC", 4, func(c *nodetest.NodeConfig) { c.Auth.Modes = []auth.Mode{auth.Secure} })
		wantError(t, "msgr1 with mode secure alone", onlyError(secure.Connect(server.Addr, wire.OSD)), control.ErrConfig)
		wantError(t, "bound with mode secure alone", onlyError(secure.Bind(server.Addr.WithPort(0))), control.ErrConfig)
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
