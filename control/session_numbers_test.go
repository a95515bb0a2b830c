package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Numbers that nobody can have: what comes in the name of a peer does not keep
// the peer out, and what a peer says of ours does not change ours.

// acknowledge has the peer acknowledge all that the node has sent, up to seq.
func (s *scripts) acknowledge(p *msgrtest.Peer, seq uint64) {
	s.t.Helper()
	p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: seq})
	eventually(s.t, s.ctx, "the ack", func() bool {
		st, err := s.node.Lookup(s.addr).Stats()
		return err == nil && st.IO.Sent == 0
	})
}

// No frame with a number that would wrap is taken, and the session stays as it is.
func TestNumbersThatWouldWrapAreRefused(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		p, si := s.establish(clientCookie, 5)
		s.talks(p, 1)
		for _, n := range []uint64{1<<64 - 1, 1 << 63, 1<<62 + 1} {
			s.reconnect(clientCookie, si.Cookie, n, 1, 1).ExpectEnd()
			s.reconnect(clientCookie, si.Cookie, 6, n, 1).ExpectEnd()
			q := s.dial()
			q.Handshake()
			q.SendPayload(frame.TagClientIdent, q.ClientIdent(clientCookie, n))
			q.ExpectEnd()
			s.must(q)
		}
		s.talks(p, 2)
		p = s.reconnect(clientCookie, si.Cookie, 6, 1, 2)
		if seq := p.ExpectReconnectOK(); seq != 2 {
			t.Errorf("SESSION_RECONNECT_OK(%d), want 2", seq)
		}
		s.talks(p, 3)
	})
}

// Who can name the session comes with the highest numbers that are taken. The
// owner gets in again, by SESSION_RECONNECT and by CLIENT_IDENT, as soon as no
// handshake can be under way any more that is older.
func TestHighNumbersInAnothersNameLockNobodyOut(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "SFS", true, func(c *msgrtest.NodeConfig) { c.HandshakeTimeout = 2 * time.Second })
		p, si := s.establish(clientCookie, 5)
		s.talks(p, 1)
		attack := s.reconnect(clientCookie, si.Cookie, 1<<62, 1<<62, 1)
		attack.ExpectReconnectOK()
		s.must(attack)
		attack.Close()

		globalSeq := uint64(5)
		again := func(what string, enter func(p *msgrtest.Peer) bool) {
			eventually(t, ctx, what, func() bool {
				globalSeq++
				p = s.dial()
				p.Handshake()
				s.must(p)
				return enter(p)
			})
		}
		again("the owner's SESSION_RECONNECT", func(p *msgrtest.Peer) bool {
			p.SendPayload(frame.TagSessionReconnect, p.SessionReconnect(clientCookie, si.Cookie, globalSeq, globalSeq-5, 1))
			return p.Next().Tag == frame.TagSessionReconnectOK
		})
		s.talks(p, 2)
		s.acknowledge(p, 2)

		attack = s.dial()
		attack.Establish(clientCookie, 1<<62)
		s.must(attack)
		attack.Close()
		again("the owner's CLIENT_IDENT", func(p *msgrtest.Peer) bool {
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, globalSeq))
			return p.Next().Tag == frame.TagServerIdent
		})
		s.talks(p, 1)
	})
}

// A msg_seq above what we have sent ends that socket. The owner resumes as if
// nothing had been, and gets what it does not have, under the numbers that follow.
func TestAMsgSeqThatWasNotSentChangesNothing(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "SFS", true)
		p, si := s.establish(clientCookie, 5)
		s.talks(p, 1) // our message 1
		s.acknowledge(p, 1)
		for i, n := range []uint64{1<<64 - 1, 2} {
			s.reconnect(clientCookie, si.Cookie, uint64(6+i), uint64(1+i), n).ExpectEnd()
		}
		send(t, s.node.Lookup(s.addr), 71)
		p = s.reconnect(clientCookie, si.Cookie, 9, 3, 1)
		p.Ignore(frame.TagAck)
		if seq := p.ExpectReconnectOK(); seq != 1 {
			t.Errorf("SESSION_RECONNECT_OK(%d), want 1", seq)
		}
		send(t, s.node.Lookup(s.addr), 72)
		for i, tid := range []uint64{71, 72} {
			if hd, _ := p.ExpectMessage(); hd.TID != tid || hd.Seq != uint64(2+i) {
				t.Errorf("message %+v, want %d as number %d: %v", hd, tid, 2+i, p.Err())
			}
		}
		s.must(p)
	})
}

// The same in SESSION_RECONNECT_OK and in ACK, as a peer that we dial says it.
// One that insists on it has another session, and gets a new one.
func TestAPeerThatHasReceivedWhatWasNotSentGetsANewSession(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LLC")
		p, ci := s.establish()
		p.Ignore(frame.TagAck)
		send(t, s.conn, 1)
		p.ExpectMessage()
		p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: 1<<64 - 1})
		send(t, s.conn, 2)
		if hd, _ := p.ExpectMessage(); hd.Seq != 2 {
			t.Errorf("message %+v behind an absurd ACK: %v", hd, p.Err())
		}
		p.Close()
		for _, n := range []uint64{1<<64 - 1, 3, 1 << 40, 3} {
			p = s.accept()
			p.ExpectReconnect()
			p.SendPayload(frame.TagSessionReconnectOK, wire.SessionReconnectOK{MsgSeq: n})
			p.ExpectEnd()
			s.must(p)
		}
		p = s.accept()
		if again := p.ExpectClientIdent(); again.Cookie != ci.Cookie {
			t.Errorf("CLIENT_IDENT %+v after %+v", again, ci)
		}
		p.Ignore(frame.TagAck)
		p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie+1, 2))
		if hd, _ := p.ExpectMessage(); hd.TID != 2 {
			t.Errorf("message %+v, want 2: %v", hd, p.Err())
		}
		s.must(p)
	})
}

// RETRY with a number from which the next one would wrap, or that is far above
// ours, is a fault of that attempt.
func TestAnAbsurdRetryIsAFault(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LP")
		p, _, sr := s.lose(1)
		for _, absurd := range []uint64{1<<64 - 1, 1 << 63, sr.ConnectSeq + 1<<33} {
			p.SendPayload(frame.TagSessionRetry, wire.SessionRetry{ConnectSeq: absurd})
			p.ExpectEnd()
			s.must(p)
			p = s.accept()
			if next := p.ExpectReconnect(); next.ConnectSeq <= sr.ConnectSeq || next.ConnectSeq > sr.ConnectSeq+100 {
				t.Errorf("connect_seq %d behind %d and RETRY(%d)", next.ConnectSeq, sr.ConnectSeq, absurd)
			}
		}
		p.SendPayload(frame.TagSessionReconnectOK, wire.SessionReconnectOK{})
		s.must(p)
		if err := s.conn.WaitReady(ctx); err != nil {
			t.Error(err)
		}
	})
}
