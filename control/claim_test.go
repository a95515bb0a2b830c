package control_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

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
func (s *scripts) claims(id string, number int64, y wire.Addr, cookie, globalSeq uint64) (*msgrtest.Peer, wire2.ServerIdent) {
	s.t.Helper()
	p := s.comes(id, number, y)
	p.SendPayload(frame.TagClientIdent, p.ClientIdent(cookie, globalSeq))
	si := p.ExpectServerIdent()
	s.must(p)
	return p, si
}

// connects has the node connect to an address, and finds the session of who came.
func (s *scripts) connects(y wire.Addr, want wire.EntityName) *control.Conn {
	s.t.Helper()
	eventually(s.t, s.ctx, "the session", func() bool { return s.node.Lookup(y) != nil })
	c, err := s.node.Connect(y, wire.OSD)
	must(s.t, err)
	must(s.t, c.WaitReady(s.ctx))
	if got := c.Info().PeerEntity; got != want {
		s.t.Fatalf("connected with %v, want %v", got, want)
	}
	return c
}

// moves checks that the session of a peer moves messages both ways; seq is the number
// of the peer's message.
func (s *scripts) moves(p *msgrtest.Peer, c *control.Conn, seq uint64) {
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
		select {
		case <-wrong.Closed():
		case <-ctx.Done():
			t.Fatal("the claim is still believed")
		}
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
		right, err := s.node.Connect(two.Addr, wire.OSD)
		must(t, err)
		must(t, right.WaitReady(ctx))
		send(t, right, 1)
		receives(t, ctx, two, 1)
		// The real one finds the session when it comes, and who lied keeps its own.
		back, err := two.Connect(s.node.Addr, wire.OSD)
		must(t, err)
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
		theirs, err := two.Connect(s.node.Addr, wire.OSD)
		must(t, err)
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
				l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{
					Name: osd("2"), Number: 2, Addr: wire.Addr{Nonce: 2}, Rev0: v.rev0, AuthServer: &chattyServer{modes: crcOnly},
				})
				must(t, err)
				defer l.Close()
				var clock pressedClock
				s := playTo(t, ctx, v, "LP", false, proves, clock.young)
				p, si := s.claims("2", 2, l.Addr, 21, 5)
				conn := s.connects(l.Addr, osd("2"))
				for i, answer := range c.answers {
					if i > 0 {
						age(t, ctx, &clock)
					}
					q := l.Accept(ctx)
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
		theirs, err := two.Connect(s.node.Addr, wire.OSD)
		must(t, err)
		must(t, theirs.WaitReady(ctx))
		eventually(t, ctx, "the session", func() bool { return s.node.Lookup(two.Addr) != nil })
		first := s.node.Lookup(two.Addr)
		liar, _ := s.claims("9", 9, two.Addr, 91, 5)
		eventually(t, ctx, "two claims", func() bool { return s.node.Lookup(two.Addr) == nil })
		its := s.node.Conns()[1]
		right, err := s.node.Connect(two.Addr, wire.OSD)
		must(t, err)
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
