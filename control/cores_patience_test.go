package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// stuckWrite is a lossless connection of the server on its only core whose peer
// does not read until go ahead is called; then every message comes, in order.
func stuckWrite(t *testing.T, b *coreBench) (peer *control.Conn, goAhead func()) {
	t.Helper()
	const count = 64
	policy := control.LosslessClient()
	policy.Messages = loop.NewThrottle(1)
	first, got := make(chan *control.Message, 1), make(chan uint64, count)
	m := b.messenger(control.Config{
		Name: wire.EntityName{Type: wire.Client, ID: "slow"}, Default: &policy,
		Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: b.backend}},
	}, &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		if m.TID == 1 {
			m.Retain()
			first <- m
		}
		got <- m.TID
		return true
	}})
	conn, err := m.Connect(b.at, wire.OSD)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.WaitReady(b.ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.ctx, "the server's connection", func() bool { return len(b.server.Conns()) == 1 })
	peer = b.server.Conns()[0]
	for i := range count {
		msg := control.NewMessage(1, nil, make([]byte, 1<<20))
		msg.TID = uint64(i + 1)
		if err := peer.Send(msg); err != nil {
			t.Fatal(err)
		}
	}
	kept := <-first
	last, same := uint64(0), 0
	eventually(t, b.ctx, "a write that is stuck", func() bool {
		st, err := peer.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if same++; !st.IO.Writing || st.IO.MessagesOut != last {
			same = 0
		}
		last = st.IO.MessagesOut
		return same > 100
	})
	return peer, func() {
		t.Helper()
		kept.Release()
		for want := uint64(1); want <= count; want++ {
			select {
			case tid := <-got:
				if tid != want {
					t.Fatalf("message %d, want %d", tid, want)
				}
			case <-b.ctx.Done():
				t.Fatalf("message %d does not come: %v", want, conn.Err())
			}
		}
	}
}

// A connection is on its way to a core that is removed before it arrives, and
// the core that it comes from is removed twice: it goes on to a third one, with
// the TCP connection that it has.
func TestAConnectionGoesOnFromACoreThatIsRemovedBeforeItArrives(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		b := newCoreBench(t, control.Config{Plane: loop.Config{Cores: 1}}, backend)
		peer, goAhead := stuckWrite(t, b)
		removed := make(chan error, 3)
		remove := func(core int) {
			go func() { removed <- b.server.RemoveCore(b.ctx, core) }()
			eventually(t, b.ctx, "the state of the core", func() bool {
				c := b.server.RawPlane().Core(core)
				return c != nil && c.State() == loop.CoreDraining
			})
		}
		if _, err := b.server.AddCore(b.ctx); err != nil {
			t.Fatal(err)
		}
		remove(0) // to core 1
		if _, err := b.server.AddCore(b.ctx); err != nil {
			t.Fatal(err)
		}
		remove(1)
		remove(0)
		// Whoever has the cores next comes behind both removals.
		if id, err := b.server.AddCore(b.ctx); err != nil || id != 3 {
			t.Fatalf("core %d, %v", id, err)
		}
		goAhead()
		for range cap(removed) {
			if err := <-removed; err != nil && !errors.Is(err, control.ErrNoCore) {
				t.Error(err)
			}
		}
		if st, err := peer.Stats(); err != nil || st.Counters.Faults != 0 || st.Placement.Core < 2 {
			t.Errorf("%+v on core %d, %v", st.Counters, st.Placement.Core, err)
		}
		b.stop()
	})
}

// A core that is stuck in a callback is removed when it is not any more; the
// others go on.
func TestARemovalDoesNotHangOnAStuckCore(t *testing.T) {
	b := newCoreBench(t, control.Config{Plane: loop.Config{Cores: 2, StallAfter: -1}}, uring.Epoll)
	stuck := b.server.RawPlane().Core(0)
	release := stick(t, stuck)
	ctx, cancel := context.WithCancel(b.ctx)
	removed := make(chan error, 1)
	go func() { removed <- b.server.RemoveCore(ctx, 0) }()
	eventually(t, b.ctx, "the removal", func() bool { return stuck.State() == loop.CoreDraining })
	cancel()
	if err := <-removed; !errors.Is(err, context.Canceled) {
		t.Fatalf("removed: %v", err)
	}
	if _, err := b.server.AddCore(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("added while a removal is under way: %v", err)
	}
	release()
	eventually(t, b.ctx, "the end of the core", func() bool { return len(b.server.Cores()) == 1 && b.server.Core(1) != nil })
	b.knockSome(10)
	if id, err := b.server.AddCore(b.ctx); err != nil || id != 0 {
		t.Errorf("core %d, %v", id, err)
	}
	b.knockSome(10)
}

// The listeners of a single core are not open for company: that needs the core.
func TestAddingACoreDoesNotHangOnAStuckCore(t *testing.T) {
	b := newCoreBench(t, control.Config{Plane: loop.Config{Cores: 1, StallAfter: -1}}, uring.Epoll)
	release := stick(t, b.server.RawPlane().Core(0))
	ctx, cancel := context.WithCancel(b.ctx)
	added := make(chan error, 1)
	go func() {
		_, err := b.server.AddCore(ctx)
		added <- err
	}()
	eventually(t, b.ctx, "the new core", func() bool { return len(b.server.Cores()) == 2 })
	cancel()
	if err := <-added; !errors.Is(err, context.Canceled) {
		t.Fatalf("added: %v", err)
	}
	release()
	eventually(t, b.ctx, "the end of the new core", func() bool { return len(b.server.Cores()) == 1 && b.server.Core(0) != nil })
	b.knockSome(10)
	if id, err := b.server.AddCore(b.ctx); err != nil || id != 1 {
		t.Errorf("core %d, %v", id, err)
	}
	b.knockSome(10)
}

// stick keeps a core in a callback until it is released.
func stick(t *testing.T, c *loop.Core) (release func()) {
	t.Helper()
	begun, over := make(chan struct{}), make(chan struct{})
	if err := c.Do(func(*loop.Core) { close(begun); <-over }); err != nil {
		t.Fatal(err)
	}
	<-begun
	release = sync.OnceFunc(func() { close(over) })
	t.Cleanup(release)
	return release
}

// A successor finds gaps where the predecessor has removed cores, and steers all
// the same.
func TestAHandOverFromFewerCoresThanNumbersIsSteered(t *testing.T) {
	needSteering(t)
	nodetest.CheckLeaks(t)
	b := newCoreBench(t, control.Config{Steer: control.SteerTable, Plane: loop.Config{Cores: 4}}, uring.Auto)
	for _, id := range []int{0, 2} {
		if err := b.server.RemoveCore(b.ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	next := succeed(t, b.ctx, b.server, control.Config{
		Name: b.server.Name(), Steer: control.SteerTable, Plane: loop.Config{Cores: 3},
	}, &control.Dispatcher{})
	endWithTest(t, next)
	if st := statsOf(t, next).Steering; !st.Active {
		t.Fatalf("%+v", st)
	}
	for core := range 3 {
		if err := next.PinPeer(source(core), core); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			knock(t, netip.AddrPortFrom(source(core), 0), b.at.AddrPort)
		}
	}
	got, _ := arrived(t, next, 15)
	if fmt.Sprint(got) != "[5 5 5]" {
		t.Errorf("cores accepted %v", got)
	}
}

// A core that took the number of a removed one has a listener that was another's
// before; steering goes on, here and with a successor.
func TestCoresThatCameAndWentAreSteered(t *testing.T) {
	needSteering(t)
	nodetest.CheckLeaks(t)
	b := newCoreBench(t, control.Config{Steer: control.SteerTable, Plane: loop.Config{Cores: 2}}, uring.Auto)
	check := func(m *control.Messenger, when string) {
		t.Helper()
		if st := statsOf(t, m).Steering; !st.Active {
			t.Fatalf("%s: %+v", when, st)
		}
		before, _ := arrived(t, m, 0)
		for core := range 2 {
			if err := m.PinPeer(source(core), core); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				knock(t, netip.AddrPortFrom(source(core), 0), b.at.AddrPort)
			}
		}
		after, _ := arrived(t, m, before[0]+before[1]+10)
		if after[0] != before[0]+5 || after[1] != before[1]+5 {
			t.Errorf("%s: cores accepted %v, before %v", when, after, before)
		}
	}
	for round := range 3 {
		if err := b.server.RemoveCore(b.ctx, round%2); err != nil {
			t.Fatal(err)
		}
		if id, err := b.server.AddCore(b.ctx); err != nil || id != round%2 {
			t.Fatalf("core %d, %v", id, err)
		}
		check(b.server, fmt.Sprint("round ", round))
	}
	next := succeed(t, b.ctx, b.server, control.Config{
		Name: b.server.Name(), Steer: control.SteerTable, Plane: loop.Config{Cores: 2},
	}, &control.Dispatcher{})
	endWithTest(t, next)
	check(next, "the successor")
}
