package control_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// The budget of the messenger has room for the messages of one peer, but not all of
// it: the other peer is answered.
func TestAPeerWhoseMessagesAreRetainedDoesNotStopAnother(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		ctx := deadline(t)
		v := variants[0]
		var mu sync.Mutex
		var kept []*control.Message
		over := false                         // what comes now is not kept
		throttle := loop.NewThrottle(1 << 40) // of a policy: the connection has none of its own
		server := nodeOf(t, v, "osd.0", "SLS", 1, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			if m.Type == 1 {
				mu.Lock()
				defer mu.Unlock()
				if over {
					return true
				}
				m.Retain()
				kept = append(kept, m)
				return true
			}
			_ = c.Reply(m, control.NewMessage(m.Type, nil, nil)) // fails only if the client is gone
			return true
		}}), func(c *nodetest.NodeConfig) {
			c.Receiving.Bytes = 1 << 20
			if !bounded {
				p := control.StatelessServer()
				p.Bytes = throttle
				c.Default = &p
			}
		})
		greedy := nodeOf(t, v, "client.1", "LC", 2).Dial(server)
		for range 64 {
			if err := greedy.Send(control.NewMessage(1, nil, make([]byte, 32<<10))); err != nil {
				t.Fatal(err)
			}
		}
		full := func() bool {
			for _, c := range server.Conns() {
				if st, err := c.Stats(); err == nil && st.IO.Throttled {
					return true
				}
			}
			return false
		}
		eventually(t, ctx, "the greedy one to be stopped", full)
		free := int64(1<<20) - server.DispatchThrottle().Used()
		if roomy := free >= 1<<19-64<<10; roomy != bounded {
			t.Errorf("bounded %v: %d bytes are left for others", bounded, free)
		}
		if bounded {
			other := nodeOf(t, v, "client.2", "LC", 3).Dial(server)
			for range 8 {
				reply, err := other.Call(ctx, control.NewMessage(2, nil, make([]byte, 256<<10)))
				if err != nil {
					t.Fatal(err)
				}
				reply.Release()
			}
			found := false
			for _, c := range server.Conns() {
				st, err := c.Stats()
				if err != nil {
					t.Fatal(err)
				}
				for _, th := range st.Throttles {
					found = found || th.Of == "connection" && th.Limit == 1<<19 && th.Waiting == 1
				}
			}
			if !found {
				t.Error("Stats does not show the bound of the connection")
			}
		}
		greedy.MarkDown()
		mu.Lock()
		for _, m := range kept {
			m.Release()
		}
		kept, over = nil, true
		mu.Unlock()
		end(t, server.Messenger)
	}
}

func TestPauseStopsReadingUntilResumeOverReconnects(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.0", "SFS", 1)
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(server)
		send(t, conn, 1)
		receives(t, ctx, server, 1)
		back := first(t, ctx, server)
		back.Pause()
		paused := func() bool {
			st, err := back.Stats()
			return err == nil && st.IO.Paused
		}
		eventually(t, ctx, "the pause", paused)
		b := client.Probe.ArmNext(nodetest.MustPoint("MESSAGE_WRITE"), nodetest.Fault())
		send(t, conn, 2)
		client.Hit(ctx, b)
		eventually(t, ctx, "the next socket", func() bool {
			st, err := conn.Stats()
			return err == nil && st.State == "ready" && st.IO.Sent == 1
		})
		for range 3 { // turns of the paused core, in which it could read
			if st, err := back.Stats(); err != nil || st.IO.InSeq != 1 || !st.IO.Paused {
				t.Errorf("paused: %+v, %v", st.IO, err)
			}
		}
		back.Resume()
		receives(t, ctx, server, 1, 2)
		if paused() {
			t.Error("still paused")
		}
	})
}
