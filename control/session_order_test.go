package control_test

import (
	"context"
	"fmt"
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
			{nodetest.Read(frame.TagServerIdent), 1}, {nodetest.Write(frame.TagMessage), 100}, {nodetest.Read(frame.TagSessionReconnectOK), 1},
			{nodetest.Write(frame.TagMessage), 400}, {nodetest.Write(frame.TagSessionReconnect), 3}, {nodetest.Write(frame.TagMessage), 900},
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

// A connection is the same one whoever asks for it, also a callback on
// another core.
// Matrix: PO-17, XC-04, INV-09
func TestConnectFromACallbackFindsTheSession(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		var mu sync.Mutex
		found := map[*control.Conn]bool{}
		var us, peer *nodetest.Node
		ready := make(chan struct{})
		us = nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) { c.Plane.Cores = 4 }, withChain(&control.Dispatcher{
			Fast: func(*control.Conn, *control.Message) bool {
				<-ready
				c := us.Dial(peer)
				mu.Lock()
				defer mu.Unlock()
				found[c] = true
				return true
			},
		}))
		peer = nodeOf(t, v, "osd.2", "LP", 2)
		close(ready)
		conn := us.Dial(peer)
		const others = 8
		for i := range others {
			n := nodeOf(t, v, fmt.Sprintf("osd.%d", 10+i), "LP", uint32(10+i))
			send(t, n.Dial(us), uint64(i))
		}
		eventually(t, ctx, "all callbacks", func() bool { return len(us.Inbox.TIDs()) == others })
		mu.Lock()
		defer mu.Unlock()
		if len(found) != 1 || !found[conn] {
			t.Errorf("callbacks found %d connections", len(found))
		}
	})
}

// A connection is marked down by a callback of another one, on whatever
// core, while its own messages are dispatched: nothing of it is dispatched
// once it is closed.
// Matrix: XC-07
func TestMarkDownFromAForeignCoreEndsTheDispatch(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		for range 5 {
			victims := make(chan *control.Conn, 1)
			var late sync.Map // dispatched behind Closed
			us := nodeOf(t, v, "osd.1", "SLS", 1, func(c *nodetest.NodeConfig) { c.Plane.Cores = 4 }, withChain(&control.Dispatcher{
				Fast: func(c *control.Conn, m *control.Message) bool {
					select {
					case <-c.Closed():
						late.Store(c.ID(), m.TID)
					default:
					}
					if m.TID == 7 {
						(<-victims).MarkDown()
					}
					return true
				},
			}))
			victim, killer := nodeOf(t, v, "client.2", "LC", 2), nodeOf(t, v, "client.3", "LC", 3)
			conn := victim.Dial(us)
			stop := load(conn)
			eventually(t, ctx, "some load", func() bool { return len(us.Inbox.TIDs()) > 3 })
			theirs := first(t, ctx, us)
			victims <- theirs
			send(t, killer.Dial(us), 7)
			<-theirs.Closed()
			<-conn.Closed()
			stop()
			late.Range(func(id, tid any) bool {
				t.Errorf("connection %v dispatched %v when it was closed", id, tid)
				return true
			})
			for _, o := range us.Probe.Objects() {
				if o.Conn == theirs && o.Resets != 0 {
					t.Errorf("%v", o)
				}
			}
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
		us := nodeOf(t, v, "client.2", "LC", 2, func(c *nodetest.NodeConfig) { c.Plane.Cores = 2 }, withChain(&control.Dispatcher{
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
		busy, other := us.Dial(server, control.Anonymous(), control.OnCore(0)), us.Dial(server, control.Anonymous(), control.OnCore(1))
		send(t, busy, 7)
		<-enter
		for tid := uint64(1); tid < 6; tid++ {
			send(t, other, tid)
			awaitTID(t, ctx, us, tid+1000)
		}
		release()
		send(t, busy, 8)
		awaitTID(t, ctx, us, 1008)
		us.Await(ctx, "established C(1,1,0,1)", "established C(1,1,0,1)")
	})
}
