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
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
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

// waitsForPorts has a node that is not bound try once more for a port that is in use.
func waitsForPorts(clock *pressedClock) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) {
		c.Unbound, c.Clock, c.Binding.Retries, c.Binding.RetryDelay = true, clock, 1, portDelay
	}
}

func TestShutdownEndsTheWaitForAPort(t *testing.T) {
	host := ownHost()
	hold(t, netip.AddrPortFrom(host, 6800))
	clock := &pressedClock{}
	n := nodeOf(t, variants[0], "osd.1", "SFS", 1, waitsForPorts(clock))
	bound := async(func() error { return onlyError(n.Bind(v2(host, 6800))) })
	happens(t, "the wait", func() bool { return clock.waiting(portDelay) })
	must(t, n.Shutdown(deadline(t)))
	if err := <-bound; !errors.Is(err, control.ErrShutdown) {
		t.Errorf("Bind: %v", err)
	}
}

// The first of two addresses accepts while Bind waits for the port of the second one. A peer that
// comes there is not refused because the address is not ours yet.
// Matrix: SH-10
func TestAConnectionThatComesDuringBindIsServedAfterIt(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		host := ownHost()
		held := hold(t, netip.AddrPortFrom(host, 6801))
		clock := &pressedClock{}
		server := nodeOf(t, v, "osd.1", "SFS", 1, waitsForPorts(clock))
		bound := async(func() error { return onlyError(server.Bind(v2(host, 6800), v2(host, 6801))) })
		eventually(t, ctx, "the wait", func() bool { return clock.waiting(portDelay) })
		client := nodeOf(t, v, "client.2", "LLC", 2)
		conn := connect(t, client, v2(host, 6800).WithNonce(1), wire.OSD)
		for n := 1; n <= 16; n++ { // the others come so that the first one has time to go wrong
			eventually(t, ctx, "the server to accept", func() bool { return server.Probe.Seen(nodetest.SocketAccepted()) >= n })
			other, err := net.Dial("tcp", netip.AddrPortFrom(host, 6800).String())
			must(t, err)
			defer other.Close()
		}
		check(t, held.Close())
		clock.press(func(d time.Duration) bool { return d == portDelay })
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
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: osd("2"), Number: 2, Addr: peerAddr(uint32(20 + i)), Rev0: v.rev0}, at(c.reaches))
			defer p.Close()
			p.Claim(at(c.says))
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
