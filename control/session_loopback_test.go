package control_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

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
			us := nodeOf(t, v, name, policy, 4, func(c *nodetest.NodeConfig) { c.Plane.Cores = 2 })
			c, err := us.Loopback()
			must(t, err)
			if err := c.WaitReady(ctx); err != nil || !c.IsLoopback() || c.Info().PeerType != us.Name().Type {
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
			if err := conn.WaitReady(ctx); err != nil || conn.IsLoopback() {
				t.Fatal(err)
			}
			if again, err := us.Loopback(); err != nil || again != c {
				t.Errorf("%s: another one: %v, %v", name, again, err)
			}
			if bound {
				if same, err := us.Connect(us.Addr, wire.OSD); err != nil || same != c || us.Lookup(us.Addr) != c {
					t.Errorf("by address: %v, %v", same, err)
				}
			}
			c.MarkDown()
			<-c.Closed()
			if err := c.Send(control.NewMessage(1, nil, nil)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("send behind MarkDown: %v", err)
			}
			next, err := us.Loopback()
			if err != nil || next == c {
				t.Fatalf("%s: after MarkDown: %v, %v", name, next, err)
			}
			send(t, next, 500)
			receives(t, ctx, us, append(want, 500)...)
			must(t, us.Shutdown(ctx))
			if _, err := us.Loopback(); !errors.Is(err, control.ErrShutdown) {
				t.Errorf("after Shutdown: %v", err)
			}
		}
	})
}

// What was made before Bind is found by the address afterwards.
// Matrix: PO-13
func TestLoopbackIsFoundUnderTheAddressThatIsBoundLater(t *testing.T) {
	m := newMessenger(t, control.Config{Name: osd("0"), Plane: loop.Config{Cores: 1}})
	if _, err := m.Loopback(); !errors.Is(err, control.ErrConfig) {
		t.Errorf("before Start: %v", err)
	}
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
	if err := c.Send(m); !errors.Is(err, control.ErrQueueFull) {
		t.Fatal(err)
	}
	sent := async(func() error { return c.SendContext(ctx, m) })
	<-began
	close(release)
	must(t, <-sent)
	<-began
	<-began
}
