package control_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Throttles as a messenger applies them, over connections and cores.

// keepsake keeps every message until it is told to let one go.
type keepsake struct {
	mu   sync.Mutex
	kept []*control.Message
}

func (k *keepsake) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		m.Retain()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.kept = append(k.kept, m)
		return true
	}}
}

// letGo releases the oldest message, and says whether there was one.
func (k *keepsake) letGo() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) == 0 {
		return false
	}
	k.kept[0].Release()
	k.kept = k.kept[1:]
	return true
}

// One limit for all connections on all cores.
// Matrix: TH-03, TH-05, RL-03
func TestDispatchLimitHoldsOverAllConnections(t *testing.T) {
	const limit, size, clients, each = 64 << 10, 10 << 10, 6, 20
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		var k keepsake
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(k.dispatcher()), func(c *nodetest.NodeConfig) {
			c.Plane.Cores, c.Receiving.Bytes = 3, limit
		})
		for i := range clients {
			conn := nodeOf(t, v, fmt.Sprintf("client.%d", 2+i), "LLC", uint32(2+i)).Dial(server)
			for range each {
				must(t, conn.Send(control.NewMessage(1, bytes.Repeat([]byte{byte(i)}, size), nil)))
			}
		}
		throttle := server.DispatchThrottle()
		eventually(t, ctx, "a full throttle", func() bool { return throttle.Used() > limit-size && throttle.Waiting() > 0 })
		for done := 0; done < clients*each; {
			// The one unfinished message that goes on when only such hold the limit may
			// be above it.
			if used := throttle.Used(); used > limit+size {
				t.Fatalf("%d bytes are held, over the limit of %d and a message of %d", used, limit, size)
			}
			if k.letGo() {
				done++
				continue
			}
			eventually(t, ctx, "the next message", func() bool { return len(server.Inbox.TIDs()) > done })
		}
		eventually(t, ctx, "everything to be given back", func() bool { return throttle.Used() == 0 && throttle.Waiting() == 0 })
	})
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

// A message above the limits of the configuration is refused from its header.
// Matrix: RL-13
func TestTheLargestMessageIsThatOfTheConfiguration(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SLS", 1, func(c *nodetest.NodeConfig) {
			c.Receiving.Limits = frame.DefaultLimits()
			c.Receiving.Limits.Data = 8 << 10
		})
		conn := nodeOf(t, v, "client.2", "LC", 2).Dial(server)
		for _, size := range []int{8 << 10, 8<<10 + 1} {
			must(t, conn.Send(numbered(uint64(size), control.NewMessage(1, nil, make([]byte, size)))))
		}
		receives(t, ctx, server, 8<<10)
		arrives(t, "the end of the connection", conn.Closed())
	})
}
