package control_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// A peer with several addresses comes back under the first, whichever was dialled,
// and finds its session. Nobody else does: what is dialled is what was asked for,
// and another peer that comes from that address is another peer.
// Matrix: HS-17
func TestAPeerIsFoundUnderItsFirstAddress(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LP")
		first := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(ownHost(), 6800), Nonce: 2}
		p := s.accept()
		ci := p.ExpectClientIdent()
		si := p.ServerIdent(serverCookie, 1)
		si.Addrs = wire.AddrVec{first, s.l.Addr}
		p.SendPayload(frame.TagServerIdent, si)
		s.must(p)
		must(t, s.conn.WaitReady(ctx))
		if s.node.Lookup(first) != nil || s.node.Lookup(s.l.Addr) != s.conn {
			t.Errorf("found under %v: %v, under %v: %v", first, s.node.Lookup(first), s.l.Addr, s.node.Lookup(s.l.Addr))
		}
		comes := func(addrs wire.AddrVec) *msgrtest.Peer {
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
				Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: first, Rev0: v.rev0,
			}, s.node.Addr)
			t.Cleanup(p.Close)
			p.Handshake()
			sr := p.SessionReconnect(ci.Cookie, serverCookie, 50, 5, 0)
			sr.Addrs = addrs
			p.SendPayload(frame.TagSessionReconnect, sr)
			s.must(p)
			return p
		}
		if full := comes(wire.AddrVec{first}).ExpectReset(); !full {
			t.Error("who has the first address alone is taken for the peer")
		}
		back := comes(wire.AddrVec{first, s.l.Addr})
		back.ExpectReconnectOK()
		p.ExpectEnd()
		s.must(p)
		if c, err := s.node.Connect(first, wire.OSD); err != nil || c == s.conn {
			t.Errorf("Connect to an address that was only said: %v, the same connection %v", err, c == s.conn)
		} else {
			c.MarkDown()
		}
		s.conn.MarkDown()
		if s.node.Lookup(first) != nil || s.node.Lookup(s.l.Addr) != nil {
			t.Error("found behind MarkDown")
		}
	})
}

// Nobody checks the address that a client says it has. Who dials that address
// for a daemon gets one, and a daemon that comes from it is let in.
func TestAClientDoesNotHoldADaemonsAddress(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false)
		squat := func(addr wire.Addr) *control.Conn {
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
				Name: wire.EntityName{Type: wire.Client, ID: "9"}, Number: 9, Addr: addr, Rev0: v.rev0,
			}, s.node.Addr)
			t.Cleanup(p.Close)
			p.Establish(11, 1)
			s.must(p)
			c := s.node.Lookup(addr)
			if c == nil || c.Info().PeerType != wire.Client {
				t.Fatalf("%v", c)
			}
			return c
		}
		dialled := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(ownHost(), 6800), Nonce: 2}
		squatter := squat(dialled)
		c, err := s.node.Connect(dialled, wire.OSD)
		if err != nil || c == squatter || c.Info().PeerType != wire.OSD || s.node.Lookup(dialled) != c {
			t.Errorf("Connect: %v, the client's: %v", err, c == squatter)
		}
		if _, err := s.node.Connect(dialled, wire.Mon); !errors.Is(err, control.ErrWrongPeer) {
			t.Errorf("Connect for another daemon: %v", err)
		}
		squatter = squat(s.addr)
		p, _ := s.establish(12, 1)
		if c := s.node.Lookup(s.addr); c == squatter || c.Info().PeerType != wire.OSD {
			t.Errorf("the client's: %v", c == squatter)
		}
		s.talks(p, 1)
	})
}

// What peers may say about our own address.

// everywhere is a node that is bound to a wildcard.
func everywhere(t *testing.T, v variant) *nodetest.Node {
	t.Helper()
	n := nodeOf(t, v, "osd.1", "SFS", 1, func(c *nodetest.NodeConfig) { c.Unbound = true })
	addrs := bind(t, n, v2(netip.IPv4Unspecified(), 0))
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
	c := connect(t, from, to, wire.OSD, control.Once())
	if err := c.WaitReady(ctx); err != nil {
		t.Errorf("%v: %v", to, err)
	}
}

// Of what peers say that they have reached nothing is believed; each gets there that comes
// to any of our addresses, or through a translation.
// Matrix: HS-12, IN-08
func TestAWildcardIsReachedByAnyAddressAndLearnsNoneFromAPeer(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := everywhere(t, v)
		for i, c := range []struct {
			says string // the address that a peer says it has reached; empty: the peer is honest
			to   string // that of an honest one
		}{{says: "6.6.6.6"}, {to: "127.0.0.1"}, {to: "127.0.0.2"}, {to: "127.0.0.1"}, {says: "198.51.100.1"}} {
			if c.says == "" {
				getTo(t, ctx, nodeOf(t, v, "client.2", "LLC", uint32(2+i)), at(us, c.to))
			} else {
				outside := at(us, c.says)
				p := visitor(ctx, v, us, uint32(20+i), outside)
				defer p.Close()
				if si := p.Establish(7, 1); p.Err() != nil || !si.Addrs.Contains(outside) || si.Addrs[0] != us.Addr {
					t.Errorf("who says %v was told %v (%v)", outside, si.Addrs, p.Err())
				}
			}
			if got := us.Addrs(); len(got) != 1 || got[0] != us.Addr {
				t.Errorf("%+v: we are %v, want %v", c, got, us.Addr)
			}
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
			eventually(t, ctx, "the failures", func() bool { return statsOf(t, n).Counters.Failures.WrongPeer == want })
		}
	})
}
