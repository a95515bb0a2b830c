package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Acknowledgements, numbers, and what is sent again, told by a peer that plays
// the acceptor.

// queueDuring has the node send n messages at once: they wait behind a break.
func (s *stage) queueDuring(n int) {
	s.t.Helper()
	b := s.node.Probe.ArmNext(msgrtest.Write(frame.TagMessage), msgrtest.Block())
	send(s.t, s.conn, 1)
	s.node.Hit(s.ctx, b)
	for i := 1; i < n; i++ {
		send(s.t, s.conn, uint64(i+1))
	}
	b.Release()
}

// takes reads messages first to last, numbered as their transaction ids.
func (s *stage) takes(p *msgrtest.Peer, first, last uint64) {
	s.t.Helper()
	for want := first; want <= last; want++ {
		if hd, _ := p.ExpectMessage(); hd.TID != want || hd.Seq != want {
			s.t.Fatalf("message %+v, want %d: %v", hd, want, p.Err())
		}
	}
}

// resume answers a reconnect: msgSeq is the last message that the peer has.
func (s *stage) resume(msgSeq uint64) *msgrtest.Peer {
	s.t.Helper()
	p := s.accept()
	p.ExpectReconnect()
	p.SendPayload(frame.TagSessionReconnectOK, wire.SessionReconnectOK{MsgSeq: msgSeq})
	s.must(p)
	return p
}

// kept waits until the node keeps n messages that are not acknowledged.
func (s *stage) kept(n int) {
	s.t.Helper()
	eventually(s.t, s.ctx, "the acknowledgement", func() bool {
		st, err := s.conn.Stats()
		return err == nil && st.IO.Sent+st.IO.Queued == n
	})
}

// FT-31, and SE-22, SE-25, SE-28, SE-32: a thousand small messages at once, a part of them
// acknowledged, a further part received.
func TestExactlyTheUnacknowledgedOnesOfABatchComeAgain(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LLC")
		p, _ := s.establish()
		s.queueDuring(1000)
		s.takes(p, 1, 1000)
		p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: 600})
		s.must(p)
		s.kept(400)
		// No reconnect before there is something unsent, too.
		gate := s.node.Probe.ArmNext(msgrtest.SocketConnecting(), msgrtest.Block())
		p.Reset()
		s.node.Hit(ctx, gate)
		for tid := range uint64(3) {
			send(t, s.conn, 1001+tid)
		}
		gate.Release()
		again := s.resume(700)
		s.takes(again, 701, 1003)
		again.SendPayload(frame.TagAck, msgrtest.Ack{Seq: 1003})
		s.must(again)
		s.kept(0)
		if st, err := s.conn.Stats(); err != nil || st.IO.Requeued != 300 {
			t.Errorf("%d messages requeued (%v)", st.IO.Requeued, err)
		}
	})
}

// SE-30 and SE-31: an acknowledgement of the past changes nothing, one of the
// future frees nothing that was not sent, and both leave the connection alone.
func TestImpossibleAcknowledgementsFreeNothing(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LLC")
		p, _ := s.establish()
		for tid := range uint64(3) {
			send(t, s.conn, tid+1)
		}
		s.takes(p, 1, 3)
		for _, seq := range []uint64{2, 2, 1, 0} {
			p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: seq})
		}
		s.kept(1)
		p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: 1 << 40})
		s.kept(0)
		// What is sent now was covered by that number, and is kept all the same.
		send(t, s.conn, 4)
		s.takes(p, 4, 4)
		s.kept(1)
		p.Reset()
		s.takes(s.resume(3), 4, 4)
		s.node.Await(ctx, "established C(2,1,1,2)")
	})
}

// SE-33: the connector dispatched a message, and lost the connection before it
// could acknowledge.
func TestMessageWhoseAckWasLostIsNotDispatchedAgain(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
		connector := nodeOf(t, v, "client.2", "LLC", 2)
		b := acceptor.Probe.Arm(msgrtest.Write(frame.TagAck), 1, msgrtest.Fault())
		conn := connector.Dial(acceptor)
		for tid := range uint64(3) {
			send(t, conn, tid+1)
		}
		acceptor.Hit(ctx, b)
		send(t, conn, 4)
		receives(t, ctx, acceptor, 1, 2, 3, 4)
		settled(t, ctx, conn)
		acceptor.Await(ctx, "established A(1,1,0,2)", "replaced A(1,0,1,0)")
	})
}

// SE-26 and SE-27: numbers that come again are dropped, a gap is tolerated and
// counted.
func TestNumbersThatComeAgainAndNumbersThatAreMissing(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "SFS", true)
		p, _ := s.establish(clientCookie, 5)
		for _, m := range [][2]uint64{{1, 1}, {2, 2}, {2, 92}, {1, 91}, {7, 7}, {6, 96}, {8, 8}} {
			p.SendMessage(frame.MessageHeader{Seq: m[0], TID: m[1]}, nil, nil, nil)
		}
		s.must(p)
		receives(t, ctx, s.node, 1, 2, 7, 8)
		eventually(t, ctx, "the counters", func() bool {
			st, err := s.node.Lookup(s.addr).Stats()
			return err == nil && st.IO.Duplicates == 3 && st.IO.Gaps == 1 && st.IO.InSeq == 8
		})
	})
}

// SE-29: nothing is kept of what a lossy connection sent, and it does not
// acknowledge.
func TestLossyConnectionNeitherKeepsNorAcknowledges(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1, withChain(echoer()))
		connector := nodeOf(t, v, "client.2", "LC", 2)
		conn := connector.Dial(acceptor)
		for tid := range uint64(20) {
			send(t, conn, tid+1)
		}
		awaitTID(t, ctx, connector, 1020)
		for _, n := range []*msgrtest.Node{connector, acceptor} {
			if seen := n.Probe.Seen(msgrtest.Write(frame.TagAck)); seen != 0 {
				t.Errorf("%s: %d acknowledgements", n.Name(), seen)
			}
			st, err := first(t, ctx, n).Stats()
			if err != nil || st.IO.Sent != 0 || st.IO.AcksOut != 0 || st.ServerCookie {
				t.Errorf("%s: %+v %v", n.Name(), st, err)
			}
		}
	})
}

// SE-34: replayed messages go first, whatever the priority of those behind
// them.
func TestReplayGoesBeforeAnUrgentMessage(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LLC")
		p, _ := s.establish()
		send(t, s.conn, 1)
		send(t, s.conn, 2)
		s.takes(p, 1, 2)
		gate := s.node.Probe.ArmNext(msgrtest.SocketConnecting(), msgrtest.Block())
		p.Reset()
		s.node.Hit(ctx, gate)
		for tid, priority := range map[uint64]uint16{3: 255, 4: 10} {
			m := control.NewMessage(1, nil, nil)
			m.TID, m.Priority = tid, priority
			if err := s.conn.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		gate.Release()
		s.takes(s.resume(0), 1, 4)
	})
}
