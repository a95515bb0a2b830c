package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// mobile is a bound node that can be given other ports of its host, six of them.
func mobile(t *testing.T, v variant, name, policy string, nonce uint32, change ...func(*nodetest.NodeConfig)) *nodetest.Node {
	t.Helper()
	n := nodeOf(t, v, name, policy, nonce, append([]func(*nodetest.NodeConfig){func(c *nodetest.NodeConfig) {
		c.Unbound, c.Plane.Cores = true, 1+int(nonce)%3
		c.Policies = map[wire.EntityType]control.Policy{wire.Client: control.StatefulServer()}
		c.Binding.Ports = bpf.PortRange{First: 6800, Last: 6805}
	}}, change...)...)
	addrs, err := n.Bind(v2(ownHost(), 0))
	if err != nil {
		t.Fatal(err)
	}
	n.Addr = addrs.V2()
	return n
}

// rebind must succeed.
func rebind(t *testing.T, ctx context.Context, n *nodetest.Node, avoid ...uint16) (old wire.Addr) {
	t.Helper()
	old = n.Addr
	addrs, err := n.Rebind(ctx, avoid...)
	if err != nil {
		t.Fatal(err)
	}
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
			self, err := us.Connect(us.Addr, wire.OSD)
			if err != nil {
				t.Fatal(err)
			}
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

// A learned IP stays what peers are told, and every address is listened on.
func TestRebindKeepsTheLearnedIP(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) { c.Unbound, c.Plane.Cores = true, 2 })
		if _, err := us.Bind(v2(netip.IPv4Unspecified(), 0)); err != nil {
			t.Fatal(err)
		}
		peer := nodeOf(t, v, "osd.2", "LP", 2)
		send(t, us.Dial(peer), 1)
		receives(t, ctx, peer, 1)
		us.Addr = us.Addrs().V2()
		rebind(t, ctx, us)
		if us.Addr.IsBlank() {
			t.Fatalf("at %v", us.Addr)
		}
		send(t, us.Dial(peer), 2)
		receives(t, ctx, peer, 1, 2)
		if got := us.Addrs(); got[0] != us.Addr {
			t.Errorf("from %v to %v", us.Addr, got)
		}
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.9:%d", us.Addr.AddrPort.Port())); err != nil {
			t.Error(err)
		} else {
			_ = c.Close()
		}
	})
}

// Shutdown and Rebind at the same time: both end, whoever is first.
func TestShutdownDuringARebindEnds(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for range 8 {
			us := mobile(t, v, "osd.1", "SFS", 2)
			rebound := make(chan error)
			go func() {
				_, err := us.Rebind(ctx)
				rebound <- err
			}()
			if err := us.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			if err := <-rebound; err != nil && !errors.Is(err, control.ErrShutdown) {
				t.Errorf("rebind: %v", err)
			}
		}
	})
}
