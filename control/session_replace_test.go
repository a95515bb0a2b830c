package control_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// A new socket takes over a session while the old one is in the middle of
// something.

// comeBack resumes the peer's session on a new socket, as the nth time.
func (s *scripts) comeBack(si wire2.ServerIdent, nth, got uint64) *msgrtest.Peer {
	s.t.Helper()
	p := s.reconnect(clientCookie, si.Cookie, 5+nth, nth, got)
	p.Ignore(frame.TagAck, frame.TagKeepalive2, frame.TagKeepalive2Ack)
	p.ExpectReconnectOK()
	s.must(p)
	return p
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

// A session is taken over, on whatever core, while a callback of
// it runs: the callback ends before anything else of the connection happens.
// Matrix: RP-04, RP-05, INV-09
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
		s := playTo(t, ctx, v, "SFS", true, func(c *nodetest.NodeConfig) { c.Plane.Cores = 4 }, withChain(&control.Dispatcher{
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

// The session is over while a new socket takes it over: both
// sockets go, and nothing is told behind that.
// Matrix: RP-07, RP-08
func TestEndDuringATakeOverClosesBothSockets(t *testing.T) {
	for _, shutdown := range []bool{false, true} {
		t.Run(title("shutdown", shutdown), func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				s := playTo(t, ctx, v, "SFS", true)
				old, si := s.establish(clientCookie, 5)
				b := s.node.Probe.Arm(nodetest.Write(frame.TagSessionReconnectOK), 1, nodetest.Block())
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
				if o := s.node.Probe.Objects()[0]; o.Resets+o.RemoteResets != 0 || o.End != nodetest.Closed {
					t.Errorf("%v", o)
				}
			})
		})
	}
}
