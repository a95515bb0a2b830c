package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// The acceptor's answers, frame by frame, to a peer that plays some rows of
// the tables of package session: those that need the messenger around the machine.

const (
	clientCookie = 0xc11e
	otherCookie  = 0x0dd
)

// peerAddr is an address that nobody listens on: the peer does not want to be
// dialled.
func peerAddr(nonce uint32) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, Nonce: nonce, AddrPort: netip.MustParseAddrPort("127.0.0.1:1")}
}

// scripts makes peers that call themselves osd.2 at one address.
type scripts struct {
	t    *testing.T
	ctx  context.Context
	v    variant
	node *nodetest.Node
	addr wire.Addr
	name string
}

// playTo makes a node under test and peers for it. With peerWins the node has
// the higher address.
func playTo(t *testing.T, ctx context.Context, v variant, policy string, peerWins bool, change ...func(*nodetest.NodeConfig)) *scripts {
	nonce := uint32(1)
	if peerWins {
		nonce = 3
	}
	return &scripts{t: t, ctx: ctx, v: v, node: nodeOf(t, v, "osd.1", policy, nonce, change...), addr: peerAddr(2), name: "2"}
}

// dial begins a script; it ends with the test at the latest.
func (s *scripts) dial() *msgrtest.Peer {
	s.t.Helper()
	p := msgrtest.DialPeer(s.ctx, msgrtest.PeerConfig{
		Name: wire.EntityName{Type: wire.OSD, ID: s.name}, Number: 2, Addr: s.addr, Rev0: s.v.rev0,
	}, s.node.Addr)
	s.t.Cleanup(p.Close)
	s.must(p)
	return p
}

func (s *scripts) must(p *msgrtest.Peer) {
	s.t.Helper()
	if err := p.Err(); err != nil {
		s.t.Fatalf("%v\n%s", err, s.node.Probe.Trace())
	}
}

// establish opens a session.
func (s *scripts) establish(cookie, globalSeq uint64) (*msgrtest.Peer, wire2.ServerIdent) {
	s.t.Helper()
	p := s.dial()
	si := p.Establish(cookie, globalSeq)
	s.must(p)
	eventually(s.t, s.ctx, "the session", func() bool {
		c := s.node.Lookup(s.addr)
		return c == nil || c.State() == control.StateReady
	})
	return p, si
}

// talks checks that the session moves messages both ways; seq is the number of
// the peer's message.
func (s *scripts) talks(p *msgrtest.Peer, seq uint64) {
	s.t.Helper()
	p.Ignore(frame.TagAck)
	p.SendMessage(frame.MessageHeader{Seq: seq, TID: 500 + seq}, nil, nil, nil)
	awaitTID(s.t, s.ctx, s.node, 500+seq)
	send(s.t, s.node.Lookup(s.addr), 600+seq)
	hd, _ := p.ExpectMessage()
	s.must(p)
	if hd.TID != 600+seq {
		s.t.Fatalf("got message %d, want %d", hd.TID, 600+seq)
	}
}

// reconnect sends SESSION_RECONNECT on a new socket.
func (s *scripts) reconnect(cookie, server, globalSeq, connectSeq, msgSeq uint64) *msgrtest.Peer {
	s.t.Helper()
	p := s.dial()
	p.Handshake()
	p.SendPayload(frame.TagSessionReconnect, p.SessionReconnect(cookie, server, globalSeq, connectSeq, msgSeq))
	s.must(p)
	return p
}

// Matrix: SE-02
func TestIdentReplacesALossyConnection(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "SLR", false)
		old, _ := s.establish(0, 5)
		fresh, _ := s.establish(0, 6)
		old.ExpectEnd()
		s.must(old)
		s.node.Await(ctx, "closed A(1,1,0,1) R(1,0)", "established A(1,1,0,1)")
		s.talks(fresh, 1)
	})
}

// Matrix: SE-03
func TestStaleIdentIsClosedWithoutAWord(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		p, _ := s.establish(clientCookie, 5)
		stale := s.dial()
		stale.Handshake()
		stale.SendPayload(frame.TagClientIdent, stale.ClientIdent(clientCookie, 4))
		stale.ExpectEnd()
		s.must(stale)
		s.talks(p, 1)
		s.node.Await(ctx, "established A(1,1,0,1)", "closed A(1,1,0,0)")
	})
}

// An ident for a session that exists, with the same cookie or
// with another one.
// Matrix: SE-05, SE-06, RP-09
func TestIdentTakesOverAnEstablishedSession(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		cookie       uint64
		kept         bool
	}{
		{"restarted peer", "LP", otherCookie, true},
		{"restarted peer, reset check", "LPR", otherCookie, false},
		{"restarted client", "SFS", otherCookie, false},
		{"same cookie", "LP", clientCookie, true},
		{"same cookie, reset check", "LPR", clientCookie, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				s := playTo(t, ctx, v, c.policy, false)
				old, before := s.establish(clientCookie, 5)
				conn := s.node.Lookup(s.addr)
				old.SendMessage(frame.MessageHeader{Seq: 1, TID: 101}, nil, nil, nil)
				awaitTID(t, ctx, s.node, 101)
				old.Ignore(frame.TagAck)
				send(t, conn, 1) // never acknowledged
				if hd, _ := old.ExpectMessage(); hd.TID != 1 || hd.Seq != 1 {
					t.Fatalf("got message %d seq %d: %v", hd.TID, hd.Seq, old.Err())
				}
				fresh := s.dial()
				after := fresh.Establish(c.cookie, 6)
				s.must(fresh)
				if after.Cookie == 0 || after.Cookie == before.Cookie || after.GlobalSeq <= before.GlobalSeq {
					t.Errorf("SERVER_IDENT %+v after %+v, want a new cookie and a higher global_seq", after, before)
				}
				old.ExpectEnd()
				s.must(old)
				end := "established A(1,1,0,2)"
				if !c.kept {
					end += " R(0,1)"
				}
				s.node.Await(ctx, end, "replaced A(1,1,0,0)")
				if s.node.Lookup(s.addr) != conn {
					t.Error("the session went to another connection")
				}
				send(t, conn, 2)
				fresh.Ignore(frame.TagAck)
				want := []uint64{1, 2}
				if !c.kept {
					want = want[1:]
				}
				for i, tid := range want {
					if hd, _ := fresh.ExpectMessage(); hd.TID != tid || hd.Seq != uint64(i+1) {
						t.Errorf("message %d seq %d, want %d seq %d", hd.TID, hd.Seq, tid, i+1)
					}
				}
				fresh.SendMessage(frame.MessageHeader{Seq: 1, TID: 102}, nil, nil, nil)
				s.must(fresh)
				receives(t, ctx, s.node, 101, 102)
			})
		})
	}
}

// A CLIENT_IDENT that is held up while the session it asks for is opened on
// another socket, used, and marked down: to open it again would give the peer a
// session under the cookie of the one that it knows, with other sequences.
func TestIdentOfASessionThatHasEndedIsStale(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false)
		late := s.dial()
		late.Handshake()
		p, si := s.establish(clientCookie, 6)
		s.talks(p, 1)
		s.node.Lookup(s.addr).MarkDown()
		p.ExpectEnd()
		s.must(p)
		late.SendPayload(frame.TagClientIdent, late.ClientIdent(clientCookie, 5))
		late.ExpectEnd()
		s.must(late)

		p = s.reconnect(clientCookie, si.Cookie, 7, 1, 1)
		if full := p.ExpectReset(); !full {
			t.Error("SESSION_RESET(partial) without a session")
		}
		s.must(p)
		fresh, _ := s.establish(clientCookie, 8)
		s.talks(fresh, 1)
	})
}

// Same address, another entity.
// Matrix: SE-24, HI-12
func TestSessionIsNotHandedToAnotherEntity(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		p, si := s.establish(clientCookie, 5)
		s.name = "9"
		thief := s.dial()
		thief.Handshake()
		thief.SendPayload(frame.TagClientIdent, thief.ClientIdent(clientCookie, 6))
		thief.ExpectEnd()
		s.must(thief)
		thief = s.reconnect(clientCookie, si.Cookie, 7, 1, 0)
		thief.ExpectEnd()
		s.must(thief)
		s.talks(p, 1)
		s.node.Await(ctx, "established A(1,1,0,1)", "closed A(1,1,0,0)", "closed A(1,0,1,0)")
	})
}

// The type in HELLO decides about the policy and the session, and is only
// claimed.
// Matrix: HI-12
func TestNobodyActsAsADaemonWithoutProof(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		for _, c := range []struct {
			claimed wire.EntityType
			proven  wire.EntityName
			ends    bool
		}{
			{wire.OSD, wire.EntityName{Type: wire.Client, ID: "admin"}, true},
			{wire.Mon, wire.EntityName{Type: wire.OSD, ID: "2"}, true},
			{wire.Client, wire.EntityName{Type: wire.Mgr, ID: "x"}, false},
			{wire.OSD, wire.EntityName{Type: wire.OSD, ID: "2"}, false},
		} {
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
				Name: wire.EntityName{Type: c.claimed, ID: "2"}, Number: 2, Addr: s.addr, Rev0: v.rev0, AuthClient: none.NewClient(c.proven),
			}, s.node.Addr)
			p.Handshake()
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, 5))
			if c.ends {
				p.ExpectEnd()
			} else {
				p.ExpectServerIdent()
			}
			if p.Err() != nil {
				t.Errorf("HELLO of type %v from %v: %v", c.claimed, c.proven, p.Err())
			}
			p.Close()
			if e := s.node.Lookup(s.addr); e != nil {
				e.MarkDown()
			}
		}
	})
}

// Cookies are never 0 and never used twice, and a lossy session has none
// of the server.
// Matrix: SE-46
func TestCookiesAreNotReused(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		seen := map[uint64]string{}
		note := func(cookie uint64, whose string) {
			if other, ok := seen[cookie]; ok || cookie == 0 {
				t.Errorf("%s has cookie %#x, as %s", whose, cookie, other)
			}
			seen[cookie] = whose
		}
		s := playTo(t, ctx, v, "SFS", true)
		for i := range uint64(30) {
			_, si := s.establish(clientCookie+i, 5+i) // each time the peer has forgotten all
			note(si.Cookie, fmt.Sprintf("session %d of the acceptor", i))
		}
		for i := range 20 {
			c := stageFor(t, ctx, v, "LLC")
			p, ci := c.establish()
			note(ci.Cookie, fmt.Sprintf("session %d of the connector", i))
			c.conn.MarkDown()
			p.ExpectEnd()
		}
		lossy := playTo(t, ctx, v, "SLS", true)
		if _, si := lossy.establish(clientCookie, 5); si.Cookie != 0 || si.Flags&wire.IdentLossy == 0 {
			t.Errorf("a lossy session has %+v", si)
		}
	})
}
