package control_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// What peers may say about our own address.

// everywhere is a node that is bound to a wildcard.
func everywhere(t *testing.T, v variant) *nodetest.Node {
	t.Helper()
	n := nodeOf(t, v, "osd.1", "SFS", 1, func(c *nodetest.NodeConfig) { c.Unbound = true })
	addrs, err := n.Bind(v2(netip.IPv4Unspecified(), 0))
	if err != nil {
		t.Fatal(err)
	}
	n.Addr = v2(loopback(0).Addr(), addrs[0].AddrPort.Port()).WithNonce(1)
	return n
}

// at is the address of a node with another IP.
func at(n *nodetest.Node, ip string) wire.Addr {
	a := n.Addr
	a.AddrPort = netip.AddrPortFrom(netip.MustParseAddr(ip), a.AddrPort.Port())
	return a
}

// visitor is a scripted peer that says it has reached target.
func visitor(ctx context.Context, v variant, n *nodetest.Node, nonce uint32, target wire.Addr) *msgrtest.Peer {
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
		Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: v2(loopback(1).Addr(), 1).WithNonce(nonce), Rev0: v.rev0,
	}, n.Addr)
	p.Claim(target)
	return p
}

// getTo dials an address of a node, and expects to get there at once.
func getTo(t *testing.T, ctx context.Context, from *nodetest.Node, to wire.Addr) {
	t.Helper()
	c, err := from.Connect(to, wire.OSD, control.Once())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Errorf("%v: %v", to, err)
	}
}

// The first peer lies about the address that it has reached.
// Matrix: HS-12
func TestALieAboutOurAddressIsNotBelieved(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := everywhere(t, v)
		liar := visitor(ctx, v, us, 9, at(us, "6.6.6.6"))
		defer liar.Close()
		if si := liar.Establish(7, 1); liar.Err() != nil || len(si.Addrs) != 2 || si.Addrs[0] != us.Addr {
			t.Errorf("the liar was told %v (%v)", si.Addrs, liar.Err())
		}
		if got := us.Addrs(); len(got) != 1 || got[0] != us.Addr {
			t.Errorf("learned %v, want %v", got, us.Addr)
		}
		getTo(t, ctx, nodeOf(t, v, "client.2", "LLC", 2), us.Addr)
	})
}

func TestAPeerMayReachAWildcardByAnyOfItsAddresses(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := everywhere(t, v)
		getTo(t, ctx, nodeOf(t, v, "client.2", "LLC", 2), us.Addr)
		getTo(t, ctx, nodeOf(t, v, "client.3", "LLC", 3), at(us, "127.0.0.2"))
		getTo(t, ctx, nodeOf(t, v, "client.4", "LLC", 4), us.Addr)
		if got := us.Addrs(); len(got) != 1 || got[0] != us.Addr {
			t.Errorf("we are %v, want %v", got, us.Addr)
		}
	})
}

// Matrix: IN-08
func TestAPeerMayReachAWildcardThroughATranslation(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := everywhere(t, v)
		getTo(t, ctx, nodeOf(t, v, "client.2", "LLC", 2), us.Addr)
		outside := at(us, "198.51.100.1")
		p := visitor(ctx, v, us, 9, outside)
		defer p.Close()
		if si := p.Establish(7, 1); p.Err() != nil || !si.Addrs.Contains(outside) || si.Addrs[0] != us.Addr {
			t.Errorf("told %v (%v)", si.Addrs, p.Err())
		}
		if got := us.Addrs(); len(got) != 1 || got[0] != us.Addr {
			t.Errorf("we are %v, want %v", got, us.Addr)
		}
	})
}

// Matrix: HS-19
func TestAPeerThatWantsSomebodyElseIsRefused(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		bound, wild := nodeOf(t, v, "osd.1", "SFS", 1), everywhere(t, v)
		for name, c := range map[string]struct {
			node   *nodetest.Node
			target wire.Addr
		}{
			"nonce":              {wild, wild.Addr.WithNonce(2)},
			"port":               {wild, wild.Addr.WithPort(1)},
			"no IP":              {wild, at(wild, "0.0.0.0")},
			"IP of a bound one":  {bound, at(bound, "127.0.0.2")},
			"nonce, of that one": {bound, bound.Addr.WithNonce(2)},
		} {
			p := visitor(ctx, v, c.node, 9, c.target)
			p.Handshake()
			ci := p.ClientIdent(7, 1)
			ci.TargetAddr = c.target
			p.SendPayload(frame.TagClientIdent, ci)
			p.ExpectEnd()
			if p.Err() != nil {
				t.Errorf("%s: %v", name, p.Err())
			}
			p.Close()
		}
		for n, want := range map[*nodetest.Node]uint64{wild: 3, bound: 2} {
			eventually(t, ctx, "the failures", func() bool {
				st, err := n.Stats()
				return err == nil && st.Counters.Failures.WrongPeer == want
			})
		}
	})
}
