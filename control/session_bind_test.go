package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
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

// holders are the ways to have a port.
var holders = []struct {
	name string
	hold func(t *testing.T, v variant, at netip.AddrPort)
}{
	{"a listener", func(t *testing.T, _ variant, at netip.AddrPort) { hold(t, at, false) }},
	{"a listener that shares", func(t *testing.T, _ variant, at netip.AddrPort) { hold(t, at, true) }},
	{"a messenger with one core", func(t *testing.T, v variant, at netip.AddrPort) { holdByMessenger(t, v, at, 1) }},
	{"a messenger with three cores", func(t *testing.T, v variant, at netip.AddrPort) { holdByMessenger(t, v, at, 3) }},
}

// hold listens until the test ends. share: with SO_REUSEPORT.
func hold(t *testing.T, at netip.AddrPort, share bool) net.Listener {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if !share {
			return nil
		}
		if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil {
			return e
		}
		return err
	}}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", at.String())
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func holdByMessenger(t *testing.T, v variant, at netip.AddrPort, cores int) {
	t.Helper()
	n := unboundOSD(t, v, cores, 1)
	if _, err := n.Bind(v2(at.Addr(), at.Port())); err != nil {
		t.Fatal(err)
	}
}

// A used port is an error, whoever has it and however many listeners we want there, and never
// joined. Of a range the next free port is taken.
// Matrix: SH-10
func TestBindTakesTheNextFreePortOfTheRange(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, h := range holders {
			for cores := 1; cores <= 3; cores += 2 {
				host := ownHost()
				h.hold(t, v, netip.AddrPortFrom(host, 6800))
				h.hold(t, v, netip.AddrPortFrom(host, 6802))
				n := unboundOSD(t, v, cores, 4)
				_, err := n.Bind(v2(host, 7001), v2(host, 6800))
				if !errors.Is(err, control.ErrNoPort) || !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "6800") {
					t.Fatalf("%s, %d cores: %v", h.name, cores, err)
				}
				// Two addresses of one host, and a fixed one, which is free again.
				addrs, err := n.Bind(v2(host, 0), v2(host, 0), v2(host, 7001))
				if err != nil {
					t.Fatalf("%s, %d cores: %v", h.name, cores, err)
				}
				for i, port := range []uint16{6801, 6803, 7001} {
					if want := v2(host, port).WithNonce(1); addrs[i] != want {
						t.Errorf("%s, %d cores: address %d is %v, want %v", h.name, cores, i, addrs[i], want)
					}
				}
				n.Addr = addrs[1]
				client := nodeOf(t, v, "client.2", "LLC", 2)
				send(t, client.Dial(n), 1)
				receives(t, ctx, n, 1)

				// The range is exhausted now.
				late := unboundOSD(t, v, cores, 4)
				if _, err := late.Bind(v2(host, 0)); !errors.Is(err, control.ErrNoPort) || !errors.Is(err, unix.EADDRINUSE) ||
					!strings.Contains(err.Error(), "6800-6803, tried 1 times") {
					t.Fatalf("exhausted: %v", err)
				}
				if _, err := late.Bind(v2(host, 6900)); err != nil {
					t.Fatalf("after an exhausted range: %v", err)
				}
			}
		}
	})
}

// retryClock tells when a messenger waits for its next try to bind, which comes by calling try.
type retryClock struct {
	control.MachineClock
	delay time.Duration
	waits chan struct{}
	try   func()
}

func (c *retryClock) AfterFunc(d time.Duration, f func()) func() bool {
	if d != c.delay {
		return c.MachineClock.AfterFunc(d, f)
	}
	c.try = f
	close(c.waits)
	return func() bool { return true }
}

func TestShutdownEndsTheWaitForAPort(t *testing.T) {
	host := ownHost()
	hold(t, netip.AddrPortFrom(host, 6800), false)
	clock := &retryClock{delay: time.Hour, waits: make(chan struct{})}
	n := nodeOf(t, variants[0], "osd.1", "SFS", 1, func(c *nodetest.NodeConfig) {
		c.Unbound, c.Clock, c.Binding.Retries, c.Binding.RetryDelay = true, clock, 1, time.Hour
	})
	bound := async(func() error { return onlyError(n.Bind(v2(host, 6800))) })
	<-clock.waits
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
		held := hold(t, netip.AddrPortFrom(host, 6801), false)
		clock := &retryClock{delay: 1234 * time.Hour, waits: make(chan struct{})} // no other timer has that delay
		server := nodeOf(t, v, "osd.1", "SFS", 1, func(c *nodetest.NodeConfig) {
			c.Unbound, c.Clock, c.Binding.Retries, c.Binding.RetryDelay = true, clock, 1, clock.delay
		})
		bound := async(func() error { return onlyError(server.Bind(v2(host, 6800), v2(host, 6801))) })
		<-clock.waits
		client := nodeOf(t, v, "client.2", "LLC", 2)
		conn := connect(t, client, v2(host, 6800).WithNonce(1), wire.OSD)
		for n := 1; n <= 16; n++ { // the others come so that the first one has time to go wrong
			eventually(t, ctx, "the server to accept", func() bool { return server.Probe.Seen(nodetest.SocketAccepted()) >= n })
			other, err := net.Dial("tcp", netip.AddrPortFrom(host, 6800).String())
			must(t, err)
			defer other.Close()
		}
		check(t, held.Close())
		clock.try()
		must(t, <-bound)
		must(t, conn.WaitReady(ctx))
		if n := connStats(t, conn).Counters.Attempts; n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// Of an address without an IP the IP is learned, from the first peer,
// whichever side dials, and never the port or the nonce.
// Matrix: HS-12
func TestTheIPOfAnAddressIsLearnedFromTheFirstPeer(t *testing.T) {
	nodetest.CheckLeaks(t)
	for _, v := range variants {
		for _, dials := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v dials=%v", v, dials), func(t *testing.T) {
				ctx := deadline(t)
				us := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) { c.Unbound, c.Plane.Cores = true, 2 })
				addrs := bind(t, us, v2(netip.IPv4Unspecified(), 0))
				port := addrs[0].AddrPort.Port()
				us.Addr = v2(loopback(0).Addr(), port).WithNonce(1)
				other := nodeOf(t, v, "osd.2", "LP", 2)
				if dials {
					send(t, us.Dial(other), 1)
					receives(t, ctx, other, 1)
				} else {
					send(t, other.Dial(us), 1)
					receives(t, ctx, us, 1)
				}
				if got := us.Addrs(); len(got) != 1 || got[0] != us.Addr {
					t.Fatalf("learned %v, want %v", got, us.Addr)
				}
				// What another peer says is of no interest.
				l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "3"}, Number: 3, Addr: wire.Addr{Nonce: 3}, Rev0: v.rev0})
				must(t, err)
				defer l.Close()
				if _, err := us.Connect(l.Addr, wire.OSD); err != nil {
					t.Fatal(err)
				}
				p := l.Accept(ctx)
				p.SeeAs(netip.MustParseAddrPort("10.1.2.3:4"))
				p.Handshake()
				ident := p.ExpectClientIdent()
				if p.Err() != nil || len(ident.Addrs) != 1 || ident.Addrs[0] != us.Addr {
					t.Errorf("told another peer %v (%v), want %v", ident.Addrs, p.Err(), us.Addr)
				}
				p.Close()
				if got := us.Addrs(); got[0] != us.Addr {
					t.Errorf("learned %v from another peer", got)
				}
			})
		}
	}
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
			for i, o := range us.Probe.Objects() {
				// Who comes back to the old address is refused.
				if o.Conn != nil && o.End != nodetest.Closed || o.Resets+o.RemoteResets != 0 {
					t.Errorf("object %d: %v", i, o)
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
