package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Acknowledgements, numbers, and what is sent again, told by a peer that plays
// the acceptor.

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
	p.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{MsgSeq: msgSeq})
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

// An acknowledgement of the past changes nothing, one of the
// future frees nothing that was not sent, and both leave the connection alone.
// Matrix: SE-30, SE-31
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
