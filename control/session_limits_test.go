package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
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
				if err := conn.Send(control.NewMessage(1, bytes.Repeat([]byte{byte(i)}, size), nil)); err != nil {
					t.Fatal(err)
				}
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

// throttled is a server that takes one message of each client at a time, and
// any number of an OSD's.
func throttled(k *keepsake) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) {
		clients, osds := control.StatefulServer(), control.StatefulServer()
		clients.Messages = loop.NewThrottle(1)
		c.Policies = map[wire.EntityType]control.Policy{wire.Client: clients, wire.OSD: osds}
		keep := k.dispatcher()
		c.Chain = append(c.Chain, &control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
			return conn.PeerType() == wire.Client && keep.Fast(conn, m)
		}}, echoer())
	}
}

// What a peer does not read fills the queue to its bound and no further,
// is seen there, and leaves once it reads.
// Matrix: TH-10, RL-07
func TestAPeerThatDoesNotReadFillsTheQueueToItsBound(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const bound = 1 << 20
		var k keepsake
		server := nodeOf(t, v, "osd.1", "SFS", 1, throttled(&k))
		client := nodeOf(t, v, "client.2", "LLC", 2, func(c *nodetest.NodeConfig) { c.Sending.QueueBytes = bound })
		conn := client.Dial(server)
		var tid uint64
		for full := false; !full; {
			room := conn.Room()
			m := control.NewMessage(1, nil, make([]byte, 100<<10))
			m.TID = tid + 1
			switch err := conn.Send(m); {
			case err == nil:
				tid++
			case !errors.Is(err, control.ErrQueueFull):
				t.Fatal(err)
			default:
				// The bound holds what is not acknowledged: nothing leaves any
				// more once the peer has stopped.
				st, err := conn.Stats()
				if err != nil || st.IO.QueueFull == 0 || st.HeldBytes > bound {
					t.Fatalf("%d bytes held, found full %d times, %v", st.HeldBytes, st.IO.QueueFull, err)
				}
				held, err := first(t, ctx, server).Stats()
				if err != nil {
					t.Fatal(err)
				}
				if full = held.IO.Throttled; full {
					k.letGo()
					<-room
				}
			}
		}
		for done := uint64(1); done < tid; {
			if k.letGo() {
				done++
				continue
			}
			eventually(t, ctx, "the next message", func() bool { return uint64(len(server.Inbox.TIDs())) > done })
		}
		eventually(t, ctx, "an empty queue", func() bool {
			st, err := conn.Stats()
			return err == nil && st.HeldBytes == 0
		})
		k.letGo()
	})
}
