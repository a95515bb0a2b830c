package control_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// What a connector does with each answer to CLIENT_IDENT and
// SESSION_RECONNECT, told by a peer that plays the acceptor.

const serverCookie = 0x5e4e4

// stageFor is a stage with a node that dials osd.2.
func stageFor(t *testing.T, ctx context.Context, v variant, policy string, change ...func(*nodetest.NodeConfig)) *stage {
	t.Helper()
	s := playTo(t, ctx, v, policy, true, change...).listens(nil)
	s.conn = connect(t, s.node, s.addr, wire.OSD)
	return s
}

// listens has osd.2 be at the address that its peers say is theirs.
func (s *stage) listens(by auth.Server) *stage {
	s.t.Helper()
	l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{Name: osd("2"), Number: 2, Addr: wire.Addr{Nonce: 2}, Rev0: s.v.rev0, AuthServer: by})
	must(s.t, err)
	s.t.Cleanup(func() { check(s.t, l.Close()) })
	s.l, s.addr = l, l.Addr
	return s
}

// accept takes the node's next socket through the handshake.
func (s *stage) accept() *msgrtest.Peer {
	s.t.Helper()
	p := s.l.Accept(s.ctx)
	s.t.Cleanup(p.Close)
	p.Handshake()
	s.must(p)
	return p
}

// serve opens the session that the node asks for.
func (s *stage) serve() (*msgrtest.Peer, wire2.ClientIdent) {
	s.t.Helper()
	p := s.accept()
	ci := p.ExpectClientIdent()
	p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
	s.must(p)
	must(s.t, s.conn.WaitReady(s.ctx))
	return p, ci
}

// lose breaks the session with these messages sent and not acknowledged, and
// returns the peer of the reconnect with what it says. The peer has sent
// one message, number 1.
func (s *stage) lose(tids ...uint64) (*msgrtest.Peer, wire2.ClientIdent, wire2.SessionReconnect) {
	s.t.Helper()
	p, ci := s.serve()
	p.Ignore(frame.TagAck)
	p.SendMessage(frame.MessageHeader{Seq: 1, TID: 100}, nil, nil, nil)
	awaitTID(s.t, s.ctx, s.node, 100)
	for i, tid := range tids {
		send(s.t, s.conn, tid)
		if hd, _ := p.ExpectMessage(); hd.TID != tid || hd.Seq != uint64(i+1) || hd.AckSeq != 1 {
			s.t.Fatalf("message %+v, want %d: %v", hd, tid, p.Err())
		}
	}
	p.Close()
	again := s.accept()
	sr := again.ExpectReconnect()
	s.must(again)
	if sr.ClientCookie != ci.Cookie || sr.ServerCookie != serverCookie || sr.ConnectSeq != 1 || sr.GlobalSeq <= ci.GlobalSeq || sr.MsgSeq != 1 {
		s.t.Errorf("SESSION_RECONNECT %+v after CLIENT_IDENT %+v", sr, ci)
	}
	return again, ci, sr
}

// A full reset drops what was sent and begins anew under another cookie, a partial one sends
// it again. Both sides count their messages from 1.
// Matrix: SE-17, SE-18
func TestAResetDropsTheSessionOrSendsItsMessagesAgain(t *testing.T) {
	for _, full := range []bool{true, false} {
		everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
			s := stageFor(t, ctx, v, "LP")
			p, before, sr := s.lose(1, 2)
			p.SendPayload(frame.TagSessionReset, wire2.SessionReset{Full: full})
			ci := p.ExpectClientIdent()
			s.must(p)
			if (ci.Cookie == before.Cookie) == full || ci.Cookie == 0 || ci.GlobalSeq < sr.GlobalSeq {
				t.Errorf("CLIENT_IDENT %+v behind a full reset %v, before %+v", ci, full, before)
			}
			p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie+1, 2))
			p.Ignore(frame.TagAck)
			again, end := []uint64{1, 2, 3}, "established C(2,2,1,2)"
			if full {
				again, end = again[2:], end+" R(0,1)"
			}
			s.node.Await(ctx, end)
			send(t, s.conn, 3)
			for i, tid := range again {
				if hd, _ := p.ExpectMessage(); hd.TID != tid || hd.Seq != uint64(i+1) || hd.AckSeq != 0 {
					t.Errorf("message %+v, want %d: %v", hd, tid, p.Err())
				}
			}
			p.SendMessage(frame.MessageHeader{Seq: 1, TID: 101}, nil, nil, nil)
			receives(t, ctx, s.node, 100, 101)
		})
	}
}

// SE-19, SE-20 and SE-22 on one socket.
// Matrix: SE-19, SE-20, SE-22
func TestRetriesRaiseTheNumbersOnTheSameSocket(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LP")
		p, _, sr := s.lose(1, 2, 3)
		p.SendPayload(frame.TagSessionRetry, wire2.SessionRetry{ConnectSeq: 7})
		next := p.ExpectReconnect()
		if next.ConnectSeq != 8 || next.ClientCookie != sr.ClientCookie || next.MsgSeq != 1 {
			t.Errorf("SESSION_RECONNECT %+v after RETRY(7)", next)
		}
		known := next.GlobalSeq + 100
		p.SendPayload(frame.TagSessionRetryGlobal, wire2.SessionRetryGlobal{GlobalSeq: known})
		next = p.ExpectReconnect()
		if next.GlobalSeq != known+1 || next.ConnectSeq != 8 {
			t.Errorf("SESSION_RECONNECT %+v after RETRY_GLOBAL(%d)", next, known)
		}
		send(t, s.conn, 4)
		p.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{MsgSeq: 2})
		p.Ignore(frame.TagAck)
		for _, want := range []uint64{3, 4} {
			if hd, _ := p.ExpectMessage(); hd.TID != want || hd.Seq != want || hd.AckSeq != 1 {
				t.Errorf("message %+v, want %d: %v", hd, want, p.Err())
			}
		}
		s.must(p)
		s.node.Await(ctx, "established C(2,1,3,2)")
		if st, err := s.conn.Stats(); err != nil || st.Counters.Retries != 2 || st.IO.Requeued != 1 {
			t.Errorf("%+v %+v %v, want two retries and one message queued again", st.Counters, st.IO, err)
		}
	})
}

// A peer that takes every session and hangs up without a message or an ack is dialled at once the
// first time, then after pauses that double, although every attempt succeeds. An ack begins anew.
// Matrix: SE-39, HI-14
func TestASessionThatIsOfNoUseIsDialledWithPauses(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var clock pressedClock
		s := stageFor(t, ctx, v, "LLC", patient, clock.of)
		p, _ := s.serve()
		send(t, s.conn, 1) // so that it is a session with work to do
		p.Close()
		hangsUp := func() {
			p := s.accept()
			p.ExpectReconnect()
			p.SendPayload(frame.TagSessionReset, wire2.SessionReset{})
			p.ExpectClientIdent()
			p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
			p.ExpectMessage()
			s.must(p)
			p.Close()
		}
		pauses := func(n int) {
			t.Helper()
			before := len(clock.pressed())
			var want []time.Duration
			hangsUp() // dialled at once
			for d := firstBackoff; len(want) < n; d = min(2*d, longestBackoff) {
				eventually(t, ctx, "the pause", func() bool { return clock.press(isBackoff) == 1 })
				if want = append(want, d); len(want) < n {
					hangsUp()
				}
			}
			if got := clock.pressed()[before:]; !slices.Equal(got, want) {
				t.Errorf("pauses %v, want %v", got, want)
			}
		}
		pauses(9)
		p = s.accept()
		p.ExpectReconnect()
		p.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
		p.ExpectMessage()
		p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: 1})
		s.must(p)
		eventually(t, ctx, "the ack", func() bool { st := connStats(t, s.conn); return st.IO.Sent+st.IO.Queued == 0 })
		send(t, s.conn, 2)
		p.Close()
		hangsUp()
		pauses(2)
	})
}

// Two ends that may both dial. The connection that the lower address dials
// survives; the nonce decides which address is lower.

// everyPoint runs a test for each break point and variant.
func everyPoint(t *testing.T, names string, run func(t *testing.T, ctx context.Context, v variant, at nodetest.Point)) {
	nodetest.CheckLeaks(t)
	at, list := points(names), variants
	name := func(i int) string { return title(nodetest.PointName(at[i/len(list)]), list[i%len(list)]) }
	spread(t, 8, len(at)*len(list), name, func(t *testing.T, i int) {
		run(t, deadline(t), list[i%len(list)], at[i/len(list)])
	})
}

// Both dial. The side that is told to wait gets its messages over the
// other connection, which opens though its own side has nothing to send.
// Matrix: RA-01, RA-08, RA-09, RA-14
func TestWaitingSideIsServedByTheWinner(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		// Who is told to wait does not dial once more while the test takes place.
		patient := func(c *nodetest.NodeConfig) { c.Timeouts.MaxBackoff = time.Hour }
		us, them := nodeOf(t, v, "osd.1", "LP", 1, patient), nodeOf(t, v, "osd.2", "LP", 2, patient)
		b := us.Probe.Arm(nodetest.SocketConnecting(), 1, nodetest.Block())
		us.Dial(them)
		us.Hit(ctx, b)
		told := them.Probe.Arm(nodetest.Read(frame.TagWait), 1, nodetest.Continue())
		waiting := them.Dial(us)
		for tid := range uint64(5) {
			send(t, waiting, tid+1)
		}
		them.Hit(ctx, told)
		b.Release()
		receives(t, ctx, us, 1, 2, 3, 4, 5)
		us.Await(ctx, "established C(1,1,0,1)", "closed A(1,1,0,0)")
		them.Await(ctx, "established C(1,1,0,0) A(0,0,0,1)", "replaced A(1,1,0,0)")
		if st, err := us.Stats(); err != nil || st.Counters.WaitsSent != 1 {
			t.Errorf("%d times WAIT sent (%v), want once", st.Counters.WaitsSent, err)
		}
	})
}
