package control_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Many senders at once, on many cores.

// 64 senders while the session is lost and moved again and again, also while it is half open. The
// transaction id says who has sent a message, and as which.
// Matrix: SE-44, FT-32, XC-01, XC-02, XC-11
func TestEverySendersOrderSurvivesFaults(t *testing.T) {
	const senders, each = 64, 25
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		cores := func(c *nodetest.NodeConfig) { c.Plane.Cores = 4 }
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1, cores)
		connector := nodeOf(t, v, "client.2", "LLC", 2, cores)
		for _, f := range []struct {
			at  nodetest.Point
			nth int
		}{
			{nodetest.Read(frame.TagServerIdent), 1}, {nodetest.Write(frame.TagMessage), 100},
			{nodetest.Read(frame.TagSessionReconnectOK), 1}, {nodetest.Write(frame.TagMessage), 400},
			{nodetest.Write(frame.TagSessionReconnect), 3}, {nodetest.Write(frame.TagMessage), 900},
		} {
			connector.Probe.Arm(f.at, f.nth, nodetest.Fault())
		}
		conn := connector.Dial(acceptor)
		var all sync.WaitGroup
		for s := range uint64(senders) {
			all.Go(func() {
				for i := range uint64(each) {
					check(t, conn.Send(numbered(s<<32|i, control.NewMessage(1, nil, nil))))
				}
			})
		}
		all.Wait()
		eventually(t, ctx, "all messages", func() bool { return len(acceptor.Inbox.TIDs()) >= senders*each })
		next := make([]uint64, senders)
		for _, tid := range acceptor.Inbox.TIDs() {
			if s := tid >> 32; s >= senders || tid&(1<<32-1) != next[s] {
				t.Fatalf("message %x, want %d of its sender", tid, next[s])
			}
			next[tid>>32]++
		}
	})
}

// A callback that holds its core delays nobody on another one, and what
// it held goes on without a reset.
// Matrix: XC-10
func TestBusyCallbackHoldsOnlyItsCore(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		enter, leave := make(chan struct{}), make(chan struct{})
		server := nodeOf(t, v, "osd.1", "SLS", 1, withChain(echoer()))
		us := nodeOf(t, v, "client.2", "LC", 2, func(c *nodetest.NodeConfig) { c.Plane.Cores = 2 },
			withChain(&control.Dispatcher{
				Fast: func(_ *control.Conn, m *control.Message) bool {
					if m.TID == 1007 {
						close(enter)
						<-leave
					}
					return true
				},
			}))
		release := sync.OnceFunc(func() { close(leave) })
		defer release()
		busy := us.Dial(server, control.Anonymous(), control.OnCore(0))
		other := us.Dial(server, control.Anonymous(), control.OnCore(1))
		send(t, busy, 7)
		<-enter
		for tid := uint64(1); tid < 6; tid++ {
			send(t, other, tid)
			awaitTID(t, ctx, us, tid+1000)
		}
		release()
		send(t, busy, 8)
		awaitTID(t, ctx, us, 1008)
		for _, c := range us.Conns() {
			if n := connStats(t, c).Counters; n.Attempts != 1 || n.Faults != 0 {
				t.Errorf("connection %d: %+v", c.ID(), n)
			}
		}
	})
}
