package control_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Whom we reach: not who says that it is there.

var crcOnly = []auth.Mode{auth.CRC}

// proves has a node ask for the proof of names, and prove its own.
func proves(c *nodetest.NodeConfig) {
	c.Auth.Modes = crcOnly
	p := &nodetest.Proof{Name: c.Name, Modes: crcOnly}
	c.Auth.Client, c.Auth.Server = p.Client(), p.Server()
}

// osd is the name of an OSD.
func osd(id string) wire.EntityName { return wire.EntityName{Type: wire.OSD, ID: id} }

// comes has an OSD dial the node that proves its name, and says that it has an
// address and a number.
func (s *stage) comes(id string, number int64, addr wire.Addr) *msgrtest.Peer {
	s.t.Helper()
	p := msgrtest.DialPeer(s.ctx, msgrtest.PeerConfig{
		Name: osd(id), Number: number, Addr: addr, Rev0: s.v.rev0, AuthClient: (&nodetest.Proof{Name: osd(id), Modes: crcOnly}).Client(),
	}, s.node.Addr)
	s.t.Cleanup(p.Close)
	p.Handshake()
	s.must(p)
	return p
}

// age has a session be as old as one that its peer must know.
func age(t *testing.T, ctx context.Context, clock *testClock) {
	t.Helper()
	eventually(t, ctx, "the wait for the peer to know the session", func() bool {
		// All other timers have the whole limit, or are far below.
		return clock.press(func(d time.Duration) bool { return handshakeLimit/2 < d && d < handshakeLimit }) > 0
	})
}

// young is a node whose sessions are young until age.
func (c *testClock) young(cfg *nodetest.NodeConfig) {
	cfg.Timeouts.Handshake, cfg.Clock = handshakeLimit, c
}

// claims has the peer of a script open a session, and say that it is at an address.
func (s *stage) claims(
	id string, number int64, y wire.Addr, cookie, globalSeq uint64,
) (*msgrtest.Peer, wire2.ServerIdent) {
	s.t.Helper()
	p := s.comes(id, number, y)
	p.SendPayload(frame.TagClientIdent, p.ClientIdent(cookie, globalSeq))
	si := p.ExpectServerIdent()
	s.must(p)
	return p, si
}

// connects has the node connect to an address, and finds the session of who came.
func (s *stage) connects(y wire.Addr, want wire.EntityName) *control.Conn {
	s.t.Helper()
	eventually(s.t, s.ctx, "the session", func() bool { return s.node.Lookup(y) != nil })
	c := connect(s.t, s.node, y, wire.OSD)
	must(s.t, c.WaitReady(s.ctx))
	if got := c.Info().PeerEntity; got != want {
		s.t.Fatalf("connected with %v, want %v", got, want)
	}
	return c
}

// moves checks that the session of a peer moves messages both ways; seq is the number
// of the peer's message.
func (s *stage) moves(p *msgrtest.Peer, c *control.Conn, seq uint64) {
	s.t.Helper()
	p.Ignore(frame.TagAck)
	p.SendMessage(frame.MessageHeader{Seq: seq, TID: 500 + seq}, nil, nil, nil)
	awaitTID(s.t, s.ctx, s.node, 500+seq)
	send(s.t, c, 600+seq)
	if h, _ := p.ExpectMessage(); h.TID != 600+seq {
		s.t.Errorf("message %d came", h.TID)
	}
	s.must(p)
}

func TestConnectReachesWhoIsAtAnAddressAfterAnotherClaimedIt(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var clock testClock
		s := playTo(t, ctx, v, "LP", false, proves, clock.young)
		two := nodeOf(t, v, "osd.2", "LP", 2, proves)
		s.claims("9", 9, two.Addr, 91, 5)
		wrong := s.connects(two.Addr, osd("9"))
		age(t, ctx, &clock)
		arrives(t, "the end of the session that only claims the address", wrong.Closed())
		wantError(t, "the connection ended", wrong.Err(), control.ErrElsewhere, control.ErrWrongPeer)
		if st, _ := wrong.Stats(); st.Counters.Resets != 1 {
			t.Errorf("%d reset events", st.Counters.Resets)
		}
		// It comes back at once, and is not believed again.
		again, _ := s.claims("9", 9, two.Addr, 92, 6)
		eventually(t, ctx, "its session", func() bool { return len(s.node.Conns()) == 1 })
		its := s.node.Conns()[0]
		right := connect(t, s.node, two.Addr, wire.OSD)
		must(t, right.WaitReady(ctx))
		send(t, right, 1)
		receives(t, ctx, two, 1)
		// The real one finds the session when it comes, and who lied keeps its own.
		back := connect(t, two, s.node.Addr, wire.OSD)
		send(t, back, 2)
		awaitTID(t, ctx, s.node, 2)
		s.moves(again, its, 1)
		if n := len(s.node.Conns()); n != 2 || s.node.Lookup(two.Addr) != right {
			t.Errorf("%d connections, the one that was dialled is found: %v", n, s.node.Lookup(two.Addr) == right)
		}
	})
}

// Who wants another peer than the one that claims the address dials it.
// Matrix: HI-12
func TestWhoClaimsAnothersAddressIsNotReachedForIt(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves)
		s.claims("9", 9, s.addr, 91, 5)
		eventually(t, ctx, "the session of the liar", func() bool { return s.node.Lookup(s.addr) != nil })
		theirs := s.node.Lookup(s.addr)
		wanted, err := s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("2")))
		if err != nil || wanted == theirs {
			t.Errorf("Connect: %v, the liar's connection: %v", err, wanted == theirs)
		}
		_, err = s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("9")))
		wantError(t, "Connect to the liar at the address of another", err, control.ErrWrongPeer)
		s.claims("8", 8, peerAddr(4), 81, 5)
		eventually(t, ctx, "its session", func() bool { return s.node.Lookup(peerAddr(4)) != nil })
		theirs = s.node.Lookup(peerAddr(4))
		if c, err := s.node.Connect(peerAddr(4), wire.MDS); err != nil || c == theirs {
			t.Errorf("Connect to a peer of another type: %v, the liar's connection: %v", err, c == theirs)
		}
	})
}

// Behind a NAT, or on another network, nobody answers where the peer says that it is.
func TestAClaimThatNobodyAnswersStaysAndIsNotAskedWithoutPause(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		// The next question may come behind the longest pause, which a busy machine would reach.
		s := playTo(t, ctx, v, "LP", false, proves, func(c *nodetest.NodeConfig) { c.Timeouts.MaxBackoff = time.Hour })
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		dials := make(chan net.Conn, 100)
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				dials <- c
			}
		}()
		y := wire.Addr{Type: wire.AddrMsgr2, AddrPort: l.Addr().(*net.TCPAddr).AddrPort(), Nonce: 2}
		p, _ := s.claims("2", 2, y, 21, 5)
		c := s.connects(y, osd("2"))
		must(t, arrives(t, "the question", dials).Close())
		for seq := range uint64(5) {
			s.moves(p, c, seq+1)
			if again, err := s.node.Connect(y, wire.OSD); err != nil || again != c {
				t.Errorf("Connect: another connection, %v", err)
			}
		}
		if len(dials) != 0 || control.IsDialled(c) {
			t.Errorf("%d more questions, dialled: %v", len(dials), control.IsDialled(c))
		}
	})
}

// The process at the address of a claim is asked again once our SERVER_IDENT must have reached
// the peer, if it does not know the session at first.
func TestTheLastAnswerOfAnAddressDecidesAboutAClaim(t *testing.T) {
	for _, known := range []bool{true, false} {
		everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
			var clock testClock
			s := playTo(t, ctx, v, "LP", false, proves, clock.young).listens((&nodetest.Proof{Modes: crcOnly}).Server())
			p, si := s.claims("2", 2, s.addr, 21, 5)
			conn := s.connects(s.addr, osd("2"))
			for i, knows := range []bool{false, known} {
				if i > 0 {
					age(t, ctx, &clock)
				}
				q := s.accept()
				f := q.ExpectReconnect()
				if f.ClientCookie != 21 || f.ServerCookie != si.Cookie || f.GlobalSeq >= si.GlobalSeq {
					t.Errorf("asked %+v about the session of %+v", f, si)
				}
				if knows {
					q.SendPayload(frame.TagSessionRetryGlobal, wire2.SessionRetryGlobal{GlobalSeq: si.GlobalSeq})
				} else {
					q.SendPayload(frame.TagSessionReset, wire2.SessionReset{Full: true})
				}
				q.ExpectEnd()
				s.must(q)
			}
			if !known {
				arrives(t, "the end of the connection", conn.Closed())
				p.ExpectEnd()
				s.must(p)
				return
			}
			eventually(t, ctx, "the end of the check", func() bool { return control.IsDialled(conn) })
			s.moves(p, conn, 1)
		})
	}
}

// Without a proof a session that we have dialled keeps no name, and shows the one that its peer says.
func TestWhatAPeerSaysThatItIsIsShownWithItsSocket(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		node, peer := nodeOf(t, v, "osd.1", "LP", 1), nodeOf(t, v, "osd.2", "LP", 2)
		conn := node.Dial(peer)
		must(t, conn.WaitReady(ctx))
		b := peer.Probe.ArmNext(nodetest.Write(frame.TagMessage), nodetest.Fault())
		send(t, first(t, ctx, peer), 1)
		peer.Hit(ctx, b)
		receives(t, ctx, node, 1)
		if i := conn.Info(); !i.Accepted || i.PeerEntity != osd("2") {
			t.Errorf("accepted %v, from %v", i.Accepted, i.PeerEntity)
		}
	})
}

// Two have proven a name and say that they are there: the address is dialled. The one
// that is there has only that session then, and both ends keep to it.
func TestASessionThatWasDialledEndsTheOtherOneWithTheSamePeer(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves)
		two := nodeOf(t, v, "osd.2", "LP", 2, proves)
		theirs := connect(t, two, s.node.Addr, wire.OSD)
		must(t, theirs.WaitReady(ctx))
		first := first(t, ctx, s.node)
		s.claims("9", 9, two.Addr, 91, 5)
		eventually(t, ctx, "two claims", func() bool { return s.node.Lookup(two.Addr) == nil && len(s.node.Conns()) == 2 })
		right := connect(t, s.node, two.Addr, wire.OSD)
		must(t, right.WaitReady(ctx))
		arrives(t, "the end of the first session", first.Closed())
		wantError(t, "the first session ended", first.Err(), control.ErrReplaced)
		send(t, right, 100)
		awaitTID(t, ctx, two, 100)
		send(t, theirs, 200)
		awaitTID(t, ctx, s.node, 200)
		if n := connStats(t, right).Counters; n.Ready != 1 || n.Faults != 0 {
			t.Errorf("the sessions fight: %+v", n)
		}
	})
}
