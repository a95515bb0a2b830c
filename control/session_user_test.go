package control_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
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

// With an address and without one, before an address is learned and
// after.
// Matrix: PO-13
func TestLoopbackDeliversToOurselves(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, bound := range []bool{true, false} {
			name, policy := "client.4", "LLC"
			if bound {
				name, policy = "osd.4", "LP"
			}
			event := func(c *control.Conn, _ int) {
				if c.Core() == nil {
					t.Errorf("%s: it has an event", name)
				}
			}
			us := nodeOf(t, v, name, policy, 4, func(c *nodetest.NodeConfig) { c.Plane.Cores = 2 }, withChain(&control.Dispatcher{Move: event, Moved: event}))
			c, err := us.Loopback()
			must(t, err)
			if err := c.WaitReady(ctx); err != nil || c.Core() != nil || c.Info().PeerType != us.Name().Type {
				t.Fatalf("state %v, peer %v, %v", c.State(), c.Info().PeerType, err)
			}
			var want []uint64
			freed := make(chan dataplane.Outcome, 100)
			for tid := range uint64(100) {
				m := numbered(tid, control.NewMessage(1, []byte("front"), []byte("data")))
				m.Free = func(m *control.Message) { freed <- m.Outcome() }
				want = append(want, tid)
				must(t, c.Send(m))
			}
			receives(t, ctx, us, want...)
			for _, m := range us.Inbox.Messages() {
				if o := <-freed; o != dataplane.OutcomeAcknowledged || m.Conn != c || m.Front != "front" {
					t.Errorf("%s: message %d came with %q, its outcome is %v", name, m.TID, m.Front, o)
				}
			}
			if st := statsOf(t, us.Messenger); st.Counters.Accepted != 0 || st.InFlight != 0 {
				t.Errorf("%s: %+v", name, st)
			}

			// It is one, whoever asks for it how.
			other := nodeOf(t, v, "osd.5", "LP", 5, func(c *nodetest.NodeConfig) {
				c.Policies = map[wire.EntityType]control.Policy{wire.Client: control.StatefulServer()}
			})
			conn := us.Dial(other) // an unbound one learns its address
			if err := conn.WaitReady(ctx); err != nil || conn.Core() == nil {
				t.Fatal(err)
			}
			if again, err := us.Loopback(); err != nil || again != c {
				t.Errorf("%s: another one: %v, %v", name, again, err)
			}
			if bound {
				if same, err := us.Connect(us.Addr, wire.OSD); err != nil || same != c || us.Lookup(us.Addr) != c {
					t.Errorf("by address: %v, %v", same, err)
				}
				wantError(t, "another at our address", onlyError(us.Connect(us.Addr, wire.OSD, control.WithEntity(osd("5")))), control.ErrWrongPeer)
			}
			for core := range 2 {
				must(t, us.RemoveCore(ctx, core))
				must(t, onlyError(us.AddCore(ctx)))
			}
			c.MarkDown()
			<-c.Closed()
			wantError(t, "send behind MarkDown", c.Send(control.NewMessage(1, nil, nil)), net.ErrClosed)
			next, err := us.Loopback()
			if err != nil || next == c {
				t.Fatalf("%s: after MarkDown: %v, %v", name, next, err)
			}
			send(t, next, 500)
			receives(t, ctx, us, append(want, 500)...)
			must(t, us.Shutdown(ctx))
			wantError(t, "after Shutdown", onlyError(us.Loopback()), control.ErrShutdown)
		}
	})
}

// What was made before Bind is found by the address afterwards.
// Matrix: PO-13
func TestLoopbackIsFoundUnderTheAddressThatIsBoundLater(t *testing.T) {
	m := newMessenger(t, control.Config{Name: osd("0"), Plane: loop.Config{Cores: 1}})
	wantError(t, "before Start", onlyError(m.Loopback()), control.ErrConfig)
	us := nodeOf(t, variants[0], "osd.4", "LP", 4, func(c *nodetest.NodeConfig) { c.Unbound = true })
	c, err := us.Loopback()
	if err != nil || c.Core() != nil {
		t.Fatalf("it is on core %v, %v", c.Core(), err)
	}
	done := make(chan struct{})
	c.Post(&loop.Task{Run: func(*loop.Core) { close(done) }})
	<-done
	addrs := bind(t, us, v2(ownHost(), 0))
	if got, err := us.Connect(addrs[0], wire.OSD); err != nil || got != c || us.Lookup(addrs[0]) != c {
		t.Errorf("%v, %v", got, err)
	}
}

// The bound of the sending queue holds on it, and SendContext waits for room.
func TestLoopbackIsBounded(t *testing.T) {
	ctx := deadline(t)
	began, release := make(chan struct{}, 10), make(chan struct{})
	us := nodeOf(t, variants[0], "osd.4", "LP", 4, withChain(&control.Dispatcher{Fast: func(*control.Conn, *control.Message) bool {
		began <- struct{}{}
		<-release
		return true
	}}), func(c *nodetest.NodeConfig) { c.Sending.QueueMessages = 2 })
	c, err := us.Loopback()
	must(t, err)
	for range 2 {
		send(t, c, 1)
	}
	m := control.NewMessage(1, nil, nil)
	wantError(t, "Send", c.Send(m), control.ErrQueueFull)
	sent := async(func() error { return c.SendContext(ctx, m) })
	<-began
	close(release)
	must(t, <-sent)
	<-began
	<-began
}
