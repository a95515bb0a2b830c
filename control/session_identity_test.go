package control_test

import (
	"context"
	"errors"
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
	c.Auth.Client, c.Auth.Server = chatty{c.Name, crcOnly}, &chattyServer{modes: crcOnly}
}

// osd is the name of an OSD.
func osd(id string) wire.EntityName { return wire.EntityName{Type: wire.OSD, ID: id} }

// comes has an OSD dial the node that proves its name, and says that it has an
// address and a number.
func (s *stage) comes(id string, number int64, addr wire.Addr) *msgrtest.Peer {
	s.t.Helper()
	p := msgrtest.DialPeer(s.ctx, msgrtest.PeerConfig{
		Name: osd(id), Number: number, Addr: addr, Rev0: s.v.rev0, AuthClient: chatty{osd(id), crcOnly},
	}, s.node.Addr)
	s.t.Cleanup(p.Close)
	p.Handshake()
	s.must(p)
	return p
}

// An OSD that says it has the address of another one does not keep that one out,
// neither while it is there nor when it is gone, and is not reached in its place
// by who knows whom it wants.
// Matrix: HI-12
func TestWhoClaimsAnothersAddressIsNotReachedForIt(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves)
		liar := s.comes("9", 9, s.addr)
		liar.SendPayload(frame.TagClientIdent, liar.ClientIdent(91, 5))
		liar.ExpectServerIdent()
		s.must(liar)
		eventually(t, ctx, "the session of the liar", func() bool { return s.node.Lookup(s.addr) != nil })
		theirs := s.node.Lookup(s.addr)
		wanted, err := s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("2")))
		if err != nil || wanted == theirs {
			t.Fatalf("Connect: %v, the liar's connection: %v", err, wanted == theirs)
		}
		if again, err := s.node.Connect(s.addr, wire.OSD); err != nil || again != wanted {
			t.Errorf("what was dialled comes before what is said: %v", err)
		}
		if _, err := s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("9"))); !errors.Is(err, control.ErrWrongPeer) {
			t.Errorf("Connect to the liar at the address of another: %v", err)
		}
		again := s.comes("9", 2, s.addr)
		again.SendPayload(frame.TagClientIdent, again.ClientIdent(92, 6))
		again.ExpectEnd()
		s.must(again)
		wanted.MarkDown()
		arrives(t, "the end of the connection", wanted.Closed())

		p := s.comes("2", 2, s.addr)
		p.SendPayload(frame.TagClientIdent, p.ClientIdent(21, 1))
		p.ExpectServerIdent()
		s.must(p)
		ours, err := s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("2")))
		if err != nil || ours == theirs {
			t.Fatalf("Connect to osd.2: %v, the liar's connection: %v", err, ours == theirs)
		}
		if err := ours.WaitReady(ctx); err != nil || ours.Info().PeerEntity != osd("2") {
			t.Errorf("connected with %v: %v", ours.Info().PeerEntity, err)
		}
		if c := s.node.Lookup(s.addr); c != nil {
			t.Errorf("two have proven their names, and %v is believed", c.Info().PeerEntity)
		}
		theirs.MarkDown()
		liar.ExpectEnd()
		s.must(liar)
		s.talks(p, 1)
	})
}

// An address that a peer says it has is dialled when its socket is gone, and a
// peer of another name that comes from there is let in. The first one finds its
// session all the same.
func TestAClaimKeepsNobodyOutOnceItsSocketIsGone(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false)
		s.name = "9"
		first, si := s.establish(91, 5)
		if c, err := s.node.Connect(s.addr, wire.OSD); err != nil || c != s.node.Lookup(s.addr) {
			t.Errorf("a claim that nothing speaks against: %v", err)
		}
		claimed := s.node.Lookup(s.addr)
		first.Close()
		eventually(t, ctx, "the end of its socket", func() bool { return claimed.State() == control.StateStandby })
		s.name = "2"
		p, _ := s.establish(21, 1)
		if c := s.node.Lookup(s.addr); c == claimed {
			t.Error("the claim without a socket is believed")
		}
		s.talks(p, 1)
		s.name = "9"
		s.reconnect(91, si.Cookie, 6, 1, 0).ExpectReconnectOK()
		s.talks(p, 2)
	})
}

// What was dialled is not taken over by an OSD that proves to be another one,
// whatever it says.
// Matrix: SE-24
func TestWhatWasDialledIsNotTakenOverByAnotherName(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true, proves).listens(&chattyServer{modes: crcOnly})
		conn := connect(t, s.node, s.addr, wire.OSD)
		p := s.l.Accept(ctx)
		defer p.Close()
		p.Handshake()
		ci := p.ExpectClientIdent()
		p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
		s.must(p)
		must(t, conn.WaitReady(ctx))
		for _, reconnects := range []bool{false, true} {
			liar := s.comes("9", 2, s.addr)
			if reconnects {
				liar.SendPayload(frame.TagSessionReconnect, liar.SessionReconnect(ci.Cookie, serverCookie, 7, 2, 0))
			} else {
				liar.SendPayload(frame.TagClientIdent, liar.ClientIdent(92, 6))
			}
			liar.ExpectEnd()
			s.must(liar)
		}
		s.talks(p, 1)
	})
}

// Who claims the address of another peer, and leaves, does not have us begin a new
// session there: it would end the one that we have with that peer.
func TestNoNewSessionBeginsAtAnAddressThatAnotherHasClaimed(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves).listens(&chattyServer{modes: crcOnly})
		honest, liar := s.comes("2", 2, s.addr), s.comes("9", 9, s.addr)
		for i, p := range []*msgrtest.Peer{honest, liar} {
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(uint64(21+i), 1))
			p.ExpectServerIdent()
			s.must(p)
		}
		var theirs *control.Conn
		eventually(t, ctx, "the session of the liar", func() bool {
			for _, c := range s.node.Conns() {
				if c.Info().PeerEntity == osd("9") && c.State() == control.StateReady {
					theirs = c
				}
			}
			return theirs != nil
		})
		must(t, theirs.Send(control.NewMessage(1, []byte("for osd.9"), nil)))
		liar.Close()
		p := s.l.Accept(ctx)
		defer p.Close()
		p.Handshake()
		if sr := p.ExpectReconnect(); sr.ClientCookie != 22 {
			t.Errorf("the session with cookie %d comes back", sr.ClientCookie)
		}
		p.SendPayload(frame.TagSessionReset, wire2.SessionReset{Full: true})
		p.ExpectEnd()
		s.must(p)
		arrives(t, "the end of the session of the liar", theirs.Closed())
		if !errors.Is(theirs.Err(), control.ErrWrongPeer) {
			t.Errorf("the session of the liar ended with %v", theirs.Err())
		}
		s.talks(honest, 1)
	})
}

// Whom we reach when the only one who says that it has an address is not there.

// age has a session be as old as one that its peer must know.
func age(t *testing.T, ctx context.Context, clock *pressedClock) {
	t.Helper()
	eventually(t, ctx, "the wait for the peer to know the session", func() bool {
		// All other timers have the whole limit, or are far below.
		return clock.press(func(d time.Duration) bool { return handshakeLimit/2 < d && d < handshakeLimit }) > 0
	})
}

// young is a node whose sessions are young until age.
func (c *pressedClock) young(cfg *nodetest.NodeConfig) {
	cfg.Timeouts.Handshake, cfg.Clock = handshakeLimit, c
}

// claims has the peer of a script open a session, and say that it is at an address.
func (s *stage) claims(id string, number int64, y wire.Addr, cookie, globalSeq uint64) (*msgrtest.Peer, wire2.ServerIdent) {
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
		var clock pressedClock
		s := playTo(t, ctx, v, "LP", false, proves, clock.young)
		two := nodeOf(t, v, "osd.2", "LP", 2, proves)
		s.claims("9", 9, two.Addr, 91, 5)
		wrong := s.connects(two.Addr, osd("9"))
		age(t, ctx, &clock)
		arrives(t, "the end of the session that only claims the address", wrong.Closed())
		if !errors.Is(wrong.Err(), control.ErrElsewhere) || !errors.Is(wrong.Err(), control.ErrWrongPeer) {
			t.Errorf("the connection ended with %v", wrong.Err())
		}
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

func TestAPeerThatIsWhereItSaysKeepsTheSessionThatItOpened(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves)
		two := nodeOf(t, v, "osd.2", "LP", 2, proves)
		theirs := connect(t, two, s.node.Addr, wire.OSD)
		must(t, theirs.WaitReady(ctx))
		c := s.connects(two.Addr, osd("2"))
		for range 5 {
			if again, err := s.node.Connect(two.Addr, wire.OSD); err != nil || again != c {
				t.Errorf("Connect: another connection, %v", err)
			}
		}
		send(t, c, 1)
		eventually(t, ctx, "the check", func() bool { return control.IsDialled(c) })
		send(t, theirs, 2)
		receives(t, ctx, two, 1)
		awaitTID(t, ctx, s.node, 2)
		again, err := s.node.Connect(two.Addr, wire.OSD)
		if err != nil || again != c {
			t.Errorf("Connect: another connection, %v", err)
		}
		if _, err := s.node.Connect(two.Addr, wire.MDS); !errors.Is(err, control.ErrWrongPeer) {
			t.Errorf("Connect to another type: %v", err)
		}
		st, _ := two.Stats()
		for _, c := range []*control.Conn{c, theirs} {
			if cs, _ := c.Stats(); cs.Counters.Faults != 0 || cs.Counters.Ready != 1 {
				t.Errorf("the session was disturbed: %+v", cs.Counters)
			}
		}
		if st.Counters.RetriesSent != 1 {
			t.Errorf("it was asked %d times", st.Counters.RetriesSent)
		}
	})
}

// Behind a NAT, or on another network, nobody answers where the peer says that it is.
func TestAClaimThatNobodyAnswersStaysAndIsNotAskedWithoutPause(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		dials := make(chan struct{}, 100)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				dials <- struct{}{}
				_ = c.Close()
			}
		}()
		y := wire.Addr{Type: wire.AddrMsgr2, AddrPort: l.Addr().(*net.TCPAddr).AddrPort(), Nonce: 2}
		p, _ := s.claims("2", 2, y, 21, 5)
		c := s.connects(y, osd("2"))
		arrives(t, "the question", dials)
		s.moves(p, c, 1)
		for seq := range uint64(5) {
			if again, err := s.node.Connect(y, wire.OSD); err != nil || again != c {
				t.Errorf("Connect: another connection, %v", err)
			}
			s.moves(p, c, seq+2)
		}
		if len(dials) != 0 || control.IsDialled(c) {
			t.Errorf("%d more questions, dialled: %v", len(dials), control.IsDialled(c))
		}
	})
}

// Whoever is at the address of a claim answers for it.
func TestTheAnswerOfAnAddressDecidesAboutAClaim(t *testing.T) {
	const know, other, unknown = "it knows the session", "it has another session", "it does not know the session"
	for _, c := range []struct {
		name    string
		answers []string
		known   bool
	}{
		{"known", []string{know}, true},
		{"the number of another session says nothing", []string{other}, false},
		{"not known at first, as our SERVER_IDENT may be on its way", []string{unknown, know}, true},
		{"not known at last", []string{unknown, unknown}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				var clock pressedClock
				s := playTo(t, ctx, v, "LP", false, proves, clock.young).listens(&chattyServer{modes: crcOnly})
				p, si := s.claims("2", 2, s.addr, 21, 5)
				conn := s.connects(s.addr, osd("2"))
				for i, answer := range c.answers {
					if i > 0 {
						age(t, ctx, &clock)
					}
					q := s.l.Accept(ctx)
					defer q.Close()
					q.Handshake()
					f := q.ExpectReconnect()
					if f.ClientCookie != 21 || f.ServerCookie != si.Cookie || f.GlobalSeq >= si.GlobalSeq {
						t.Errorf("asked %+v about the session of %+v", f, si)
					}
					switch answer {
					case know:
						q.SendPayload(frame.TagSessionRetryGlobal, wire2.SessionRetryGlobal{GlobalSeq: si.GlobalSeq})
					case other:
						q.SendPayload(frame.TagSessionRetryGlobal, wire2.SessionRetryGlobal{GlobalSeq: si.GlobalSeq + 1})
					case unknown:
						q.SendPayload(frame.TagSessionReset, wire2.SessionReset{Full: true})
					}
					q.ExpectEnd()
					s.must(q)
				}
				switch c.answers[len(c.answers)-1] {
				case know:
					eventually(t, ctx, "the end of the check", func() bool { return control.IsDialled(conn) })
				case unknown:
					arrives(t, "the end of the connection", conn.Closed())
					p.ExpectEnd()
					s.must(p)
					return
				}
				s.moves(p, conn, 1)
				if control.IsDialled(conn) != c.known || conn.State() != control.StateReady {
					t.Errorf("known: %v, state %v", control.IsDialled(conn), conn.State())
				}
			})
		})
	}
}

// Two have proven a name and say that they are there: the address is dialled. The one
// that is there has only that session then, and both ends keep to it.
func TestASessionThatWasDialledEndsTheOtherOneWithTheSamePeer(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves)
		two := nodeOf(t, v, "osd.2", "LP", 2, proves)
		theirs := connect(t, two, s.node.Addr, wire.OSD)
		must(t, theirs.WaitReady(ctx))
		eventually(t, ctx, "the session", func() bool { return s.node.Lookup(two.Addr) != nil })
		first := s.node.Lookup(two.Addr)
		liar, _ := s.claims("9", 9, two.Addr, 91, 5)
		eventually(t, ctx, "two claims", func() bool { return s.node.Lookup(two.Addr) == nil })
		its := s.node.Conns()[1]
		right := connect(t, s.node, two.Addr, wire.OSD)
		must(t, right.WaitReady(ctx))
		arrives(t, "the end of the first session", first.Closed())
		if !errors.Is(first.Err(), control.ErrReplaced) {
			t.Errorf("the first session ended with %v", first.Err())
		}
		for tid := range uint64(20) {
			send(t, right, 100+tid)
			awaitTID(t, ctx, two, 100+tid)
			send(t, theirs, 200+tid)
			awaitTID(t, ctx, s.node, 200+tid)
		}
		if st, _ := right.Stats(); st.Counters.Ready != 1 || st.Counters.Faults != 0 {
			t.Errorf("the sessions fight: %+v", st.Counters)
		}
		s.moves(liar, its, 1)
	})
}
