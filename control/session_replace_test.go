package control_test

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// A new socket takes over a session while the old one is in the middle of
// something.

// comeBack resumes the peer's session on a new socket, as the nth time.
func (s *scripts) comeBack(si wire.ServerIdent, nth, got uint64) *msgrtest.Peer {
	s.t.Helper()
	p := s.reconnect(clientCookie, si.Cookie, 5+nth, nth, got)
	p.Ignore(frame.TagAck, frame.TagKeepalive2, frame.TagKeepalive2Ack)
	p.ExpectReconnectOK()
	s.must(p)
	return p
}

// RP-02: a message of which a part is in the socket goes out whole on the next
// one, and what was queued behind it follows.
func TestMessageBeingWrittenIsWrittenAnew(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "SFS", true)
		old, si := s.establish(clientCookie, 5)
		conn := s.node.Lookup(s.addr)
		body := bytes.Repeat([]byte("ring"), 4<<20)
		m := control.NewMessage(1, body, nil)
		m.TID = 1
		if err := conn.Send(m); err != nil {
			t.Fatal(err)
		}
		send(t, conn, 2)
		eventually(t, ctx, "a full socket", func() bool {
			st, err := conn.Stats()
			return err == nil && st.IO.Writing
		})
		fresh := s.comeBack(si, 1, 0)
		hd, front := fresh.ExpectMessage()
		if hd.TID != 1 || hd.Seq != 1 || !bytes.Equal(front, body) {
			t.Errorf("got %+v with %d bytes", hd, len(front))
		}
		if hd, _ := fresh.ExpectMessage(); hd.TID != 2 || hd.Seq != 2 {
			t.Errorf("got %+v", hd)
		}
		s.must(fresh)
		old.Close()
	})
}

// half is the first part of a message's frame, in mode crc.
func half(t *testing.T, p *msgrtest.Peer, hd frame.MessageHeader, front []byte) []byte {
	t.Helper()
	var b [frame.MessageHeaderSize]byte
	hd.Put(&b)
	f, err := frame.NewEncoder(p.Revision()).AppendFrame(nil, frame.TagMessage, b[:], front)
	if err != nil {
		t.Fatal(err)
	}
	return f[:len(f)-len(front)/2]
}

// RP-03: a message of which a part was read is forgotten with its throttle, and
// comes again.
func TestMessageBeingReadIsReadAnew(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		limit := dataplane.NewThrottle(1 << 20)
		s := playTo(t, ctx, v, "SFS", true, func(c *msgrtest.NodeConfig) {
			p := control.StatefulServer()
			p.Bytes = limit
			c.Default = &p
		})
		old, si := s.establish(clientCookie, 5)
		front := bytes.Repeat([]byte("x"), 100_000)
		old.WriteRaw(half(t, old, frame.MessageHeader{Seq: 1, TID: 1}, front))
		s.must(old)
		eventually(t, ctx, "its part to be counted", func() bool { return limit.Used() >= int64(len(front)/2) })
		fresh := s.comeBack(si, 1, 0)
		eventually(t, ctx, "its share to be given back", func() bool { return limit.Used() == 0 })
		fresh.SendMessage(frame.MessageHeader{Seq: 1, TID: 1}, front, nil, nil)
		s.must(fresh)
		receives(t, ctx, s.node, 1)
		if got := s.node.Inbox.Messages()[0].Front; got != string(front) {
			t.Errorf("got %d bytes", len(got))
		}
	})
}

// RP-04, RP-05: a session is taken over, on whatever core, while a callback of
// it runs: the callback ends before anything else of the connection happens.
func TestTakeOverWaitsForTheCallbackUnderWay(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var inside, overlaps atomic.Int32
		enter := func() func() {
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			return func() { inside.Add(-1) }
		}
		entered := make(chan chan struct{})
		s := playTo(t, ctx, v, "SFS", true, func(c *msgrtest.NodeConfig) { c.Plane.Cores = 4 }, withChain(&control.Dispatcher{
			Accept: func(*control.Conn, int, bool) { defer enter()() },
			Move:   func(*control.Conn, int) { defer enter()() },
			Fast: func(_ *control.Conn, m *control.Message) bool {
				defer enter()()
				if m.TID < 500 {
					leave := make(chan struct{})
					entered <- leave
					<-leave
				}
				return true
			},
		}))
		old, si := s.establish(clientCookie, 5)
		for nth := uint64(1); nth <= 8; nth++ {
			old.SendMessage(frame.MessageHeader{Seq: nth, TID: nth}, nil, nil, nil)
			s.must(old)
			leave := <-entered
			goOn := sync.OnceFunc(func() { close(leave) })
			// The new socket may be on the core that the callback holds: then
			// it has to wait, too.
			timer := time.AfterFunc(20*time.Millisecond, goOn)
			old = s.comeBack(si, nth, 0)
			timer.Stop()
			goOn()
		}
		if n := overlaps.Load(); n != 0 {
			t.Errorf("%d callbacks of the connection ran beside another", n)
		}
	})
}

// RP-07, RP-08: the session is over while a new socket takes it over: both
// sockets go, and nothing is told behind that.
func TestEndDuringATakeOverClosesBothSockets(t *testing.T) {
	for _, shutdown := range []bool{false, true} {
		t.Run(title("shutdown", shutdown), func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				s := playTo(t, ctx, v, "SFS", true)
				old, si := s.establish(clientCookie, 5)
				b := s.node.Probe.Arm(msgrtest.Write(frame.TagSessionReconnectOK), 1, msgrtest.Block())
				fresh := s.reconnect(clientCookie, si.Cookie, 6, 1, 0)
				s.node.Hit(ctx, b)
				if shutdown {
					if err := s.node.Shutdown(ctx); err != nil {
						t.Error(err)
					}
				} else {
					conn := s.node.Lookup(s.addr)
					conn.MarkDown()
					<-conn.Closed()
				}
				old.ExpectEnd()
				fresh.ExpectEnd()
				s.must(old)
				s.must(fresh)
				if o := s.node.Probe.Objects()[0]; o.Resets+o.RemoteResets != 0 || o.End != msgrtest.Closed {
					t.Errorf("%v", o)
				}
			})
		})
	}
}

// RP-11: one session, taken over again and again under load, keeps nothing of
// its past.
func TestSessionTakenOverManyTimesDoesNotGrow(t *testing.T) {
	msgrtest.CheckLeaks(t)
	rounds := len(sampleOf(t, make([]struct{}, 1000), 20))
	for _, v := range newest {
		t.Run(v.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			acceptor := nodeOf(t, v, "osd.1", "SFS", 1, withChain(echoer()))
			connector := nodeOf(t, v, "client.2", "LLC", 2, func(c *msgrtest.NodeConfig) {
				c.InitialBackoff, c.MaxBackoff = time.Millisecond, 5*time.Millisecond // there is one pause in each round
			})
			conn := connector.Dial(acceptor)
			goroutines := 0
			for i := range rounds {
				send(t, conn, uint64(2*i+1))
				b := connector.Probe.ArmNext(msgrtest.Write(frame.TagMessage), msgrtest.Fault())
				send(t, conn, uint64(2*i+2))
				if err := b.Wait(ctx); err != nil {
					t.Fatal(err)
				}
				if i == 10 {
					settled(t, ctx, conn)
					goroutines = runtime.NumGoroutine()
				}
			}
			awaitTID(t, ctx, acceptor, uint64(2*rounds))
			settled(t, ctx, conn)
			awaitSockets(t, ctx, connector, 1)
			awaitSockets(t, ctx, acceptor, 1)
			eventually(t, ctx, "the goroutines of old attempts to end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
			st, err := acceptor.Stats()
			if err != nil || st.Cores[0].PoolInUse > 1 || st.InFlight != 0 {
				t.Errorf("the core has %d buffers out, %d bytes in flight, %v", st.Cores[0].PoolInUse, st.InFlight, err)
			}
		})
	}
}
