package control_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
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
func stageFor(t *testing.T, ctx context.Context, v variant, policy string,
	change ...func(*nodetest.NodeConfig)) *stage {
	t.Helper()
	s := playTo(t, ctx, v, policy, true, change...).listens(nil)
	s.conn = connect(t, s.node, s.addr, wire.OSD)
	return s
}

// listens has osd.2 be at the address that its peers say is theirs.
func (s *stage) listens(by auth.Server) *stage {
	s.t.Helper()
	l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{Name: osd("2"), Number: 2, Addr: wire.Addr{Nonce: 2},
		Rev0: s.v.rev0, AuthServer: by})
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
		winner := us.Dial(them)
		us.Hit(ctx, b)
		told := them.Probe.Arm(nodetest.Read(frame.TagWait), 1, nodetest.Continue())
		probed := them.Probe.Arm(nodetest.Read(frame.TagKeepalive2), 1, nodetest.Continue())
		waiting := them.Dial(us)
		for tid := range uint64(5) {
			send(t, waiting, tid+1)
		}
		them.Hit(ctx, told)
		b.Release()
		them.Hit(ctx, probed) // the winner shows that it lives
		receives(t, ctx, us, 1, 2, 3, 4, 5)
		if n := statsOf(t, us).Counters; n.WaitsSent != 1 || n.Conns != 1 {
			t.Errorf("%+v, want one connection and one WAIT", n)
		}
		if n := connStats(t, winner).Counters; n.Attempts != 1 || n.Idents != 1 || n.Ready != 1 || n.Replaced != 0 {
			t.Errorf("the winner: %+v", n)
		}
		if n := connStats(t, waiting).Counters; n.Attempts != 1 || n.Idents != 1 || n.Ready != 1 || n.Replaced != 1 {
			t.Errorf("the side that waits: %+v", n)
		}
	})
}

// A socket of the peer takes a session over only once the attempt that it overtakes has ended, also if a
// callback of the user ignores the end of its context: each of them could leave one more behind.
func TestATakeOverWaitsForTheAttemptThatItInterrupts(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		late := newSlow(false)
		s := playTo(t, ctx, v, "LP", true, func(c *nodetest.NodeConfig) {
			c.Auth.Client = late.client(none.NewClient(c.Name), wire.OSD, func(*auth.Result) {})
		}).listens(nil)
		s.conn = connect(t, s.node, s.addr, wire.OSD)
		dialled := s.l.Accept(ctx)
		t.Cleanup(dialled.Close)
		go dialled.Handshake()
		arrives(t, "the callback", late.entered)
		p := s.dial()
		p.Handshake()
		p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, 5))
		eventually(t, ctx, "the take-over", func() bool { return connStats(t, s.conn).Counters.Replaced == 1 })
		for range 5 { // others may go on meanwhile
			s.dial().Handshake()
		}
		if state := s.conn.State(); state == control.StateReady {
			t.Error("the session goes on beside the attempt")
		}
		close(late.release)
		p.ExpectServerIdent()
		s.must(p)
		must(t, s.conn.WaitReady(ctx))
	})
}
