package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// What a connector does with each answer to CLIENT_IDENT and
// SESSION_RECONNECT, told by a peer that plays the acceptor.

// stage is a node that dials a peer on a listener.
type stage struct {
	t    *testing.T
	ctx  context.Context
	node *nodetest.Node
	l    *msgrtest.PeerListener
	conn *control.Conn
}

const serverCookie = 0x5e4e4

func stageFor(t *testing.T, ctx context.Context, v variant, policy string, change ...func(*nodetest.NodeConfig)) *stage {
	t.Helper()
	l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{
		Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: wire.Addr{Nonce: 2}, Rev0: v.rev0,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &stage{t: t, ctx: ctx, node: nodeOf(t, v, "osd.1", policy, 3, change...), l: l}
	if s.conn, err = s.node.Connect(l.Addr, wire.OSD); err != nil {
		t.Fatal(err)
	}
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

func (s *stage) must(p *msgrtest.Peer) {
	s.t.Helper()
	if err := p.Err(); err != nil {
		s.t.Fatalf("%v\n%s", err, s.node.Probe.Trace())
	}
}

// establish opens the session.
func (s *stage) establish() (*msgrtest.Peer, wire2.ClientIdent) {
	s.t.Helper()
	p := s.accept()
	ci := p.ExpectClientIdent()
	p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
	s.must(p)
	if err := s.conn.WaitReady(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	return p, ci
}

// lose breaks the session with these messages sent and not acknowledged, and
// returns the peer of the reconnect with what it says. The peer has sent
// one message, number 1.
func (s *stage) lose(tids ...uint64) (*msgrtest.Peer, wire2.ClientIdent, wire2.SessionReconnect) {
	s.t.Helper()
	p, ci := s.establish()
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

// Matrix: SE-17
func TestFullResetDropsTheSession(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LP")
		p, before, sr := s.lose(1, 2)
		p.SendPayload(frame.TagSessionReset, wire2.SessionReset{Full: true})
		ci := p.ExpectClientIdent()
		s.must(p)
		if ci.Cookie == before.Cookie || ci.Cookie == 0 || ci.GlobalSeq < sr.GlobalSeq {
			t.Errorf("CLIENT_IDENT %+v, before %+v: want a new cookie", ci, before)
		}
		p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie+1, 2))
		s.node.Await(ctx, "established C(2,2,1,2) R(0,1)")
		send(t, s.conn, 3)
		p.Ignore(frame.TagAck)
		if hd, _ := p.ExpectMessage(); hd.TID != 3 || hd.Seq != 1 || hd.AckSeq != 0 {
			t.Errorf("message %+v, want 3 as the first one: %v", hd, p.Err())
		}
		// The peer counts from 1 again as well.
		p.SendMessage(frame.MessageHeader{Seq: 1, TID: 101}, nil, nil, nil)
		receives(t, ctx, s.node, 100, 101)
	})
}

// Matrix: SE-18
func TestPartialResetKeepsTheQueue(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LP")
		p, before, _ := s.lose(1, 2)
		p.SendPayload(frame.TagSessionReset, wire2.SessionReset{Full: false})
		ci := p.ExpectClientIdent()
		s.must(p)
		if ci.Cookie != before.Cookie {
			t.Errorf("CLIENT_IDENT %+v, before %+v: want the same cookie", ci, before)
		}
		p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie+1, 2))
		p.Ignore(frame.TagAck)
		for i, tid := range []uint64{1, 2} {
			if hd, _ := p.ExpectMessage(); hd.TID != tid || hd.Seq != uint64(i+1) || hd.AckSeq != 0 {
				t.Errorf("message %+v, want %d: %v", hd, tid, p.Err())
			}
		}
		s.node.Await(ctx, "established C(2,2,1,2)")
		p.SendMessage(frame.MessageHeader{Seq: 1, TID: 101}, nil, nil, nil)
		receives(t, ctx, s.node, 100, 101)
	})
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

// A peer that retries without end is left, and dialled again.
// Matrix: HI-14
func TestEndlessRetryIsAFault(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LP")
		p, _, _ := s.lose(1)
		for p.Err() == nil {
			p.SendPayload(frame.TagSessionRetryGlobal, wire2.SessionRetryGlobal{GlobalSeq: 1})
			if f := p.Next(); f.Tag != frame.TagSessionReconnect {
				break
			}
		}
		again := s.accept()
		again.ExpectReconnect()
		again.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{MsgSeq: 1})
		s.must(again)
		s.node.Await(ctx, "established C(3,1,17,2)")
	})
}
