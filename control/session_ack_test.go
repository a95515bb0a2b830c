package control_test

import (
	"context"
	"testing"

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
