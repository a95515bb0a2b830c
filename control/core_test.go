package control_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// spot is what the tests have on each core.
type spot struct {
	thread int // of the core
	count  int // without a lock: the race detector watches
}

var spots loop.Local[spot]

// placed has every core know its thread, and checks that it ends on it.
func placed(t *testing.T, cfg *control.Config) {
	cfg.Plane.Started = func(c *loop.Core) error {
		spots.Of(c).thread = unix.Gettid()
		return nil
	}
	cfg.Plane.Ended = func(c *loop.Core) { here(t, c) }
}

// here fails the test if the caller does not run on c.
func here(t *testing.T, c *loop.Core) {
	p := spots.Of(c)
	if p.count++; p.thread != unix.Gettid() {
		t.Errorf("core %d is thread %d, and this is %d", c.ID(), p.thread, unix.Gettid())
	}
}

// A connection that moves between cores is followed by its tasks: each of them runs
// once, on the core that owns it then.
func TestTasksFollowTheirConnection(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var conn *control.Conn
		var ran atomic.Int64
		follow := func(c *control.Conn, then func()) {
			c.Post(&loop.Task{Run: func(at *loop.Core) {
				here(t, at)
				if at != c.Core() {
					t.Errorf("it runs on core %d, and the connection is on %d", at.ID(), c.Core().ID())
				}
				ran.Add(1)
				then()
			}})
		}
		moved := make(chan *loop.Core, 100)
		accepted := make(chan *control.Conn, 1)
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(&control.Dispatcher{
			Accept: func(c *control.Conn, _ int, _ bool) { here(t, c.Core()); accepted <- c },
			Move: func(c *control.Conn, _ int) { // the task comes when the connection has left
				here(t, c.Core())
				follow(c, func() {})
			},
			Moved: func(c *control.Conn, _ int) { here(t, c.Core()); moved <- c.Core() },
		}), func(c *nodetest.NodeConfig) {
			c.Plane.Cores = 2
			placed(t, &c.Config)
		})
		send(t, nodeOf(t, v, "client.2", "LLC", 2).Dial(server), 1)
		conn = <-accepted
		posted, stop := int64(0), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				done := make(chan struct{})
				follow(conn, func() { close(done) })
				posted++
				<-done
			}
		})
		for range 4 {
			must(t, server.RemoveCore(ctx, conn.Core().ID()))
			must(t, onlyError(server.AddCore(ctx)))
		}
		close(stop)
		all.Wait()
		posted += 4
		eventually(t, ctx, "all tasks", func() bool { return ran.Load() >= posted })
		if ran.Load() != posted || len(moved) != 4 {
			t.Errorf("%d of %d tasks ran, %d moves", ran.Load(), posted, len(moved))
		}
	})
}

func TestATaskOfACoreThatIsGoneRunsElsewhere(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		m := newMessenger(t, control.Config{
			Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: loop.Config{Cores: 2, Driver: uring.Config{Backend: backend}},
		})
		c := m.Core(1)
		must(t, m.RemoveCore(deadline(t), 1))
		done := make(chan bool)
		c.Post(&loop.Task{Run: func(c *loop.Core) { done <- c.Gone() && c.ID() == 1 }})
		if !<-done || m.Core(1) != nil || m.Core(0).Gone() {
			t.Error("it does not say that its core is gone")
		}
	})
}

func TestHooksTellOfCoresThatComeAndGo(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		var log journal
		ctx := deadline(t)
		tells := func(want ...string) {
			t.Helper()
			got := log.take(t, ctx, len(want))
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		plane, breakCore := breakable(backend, 3)
		plane.Started = func(c *loop.Core) error { log.add("%d starts", c.ID()); return nil }
		plane.Ended = func(c *loop.Core) { log.add("%d stops", c.ID()) }
		m := newMessenger(t, control.Config{Name: osd("0"), Plane: plane})
		tells("0 starts", "1 starts", "2 starts")
		must(t, m.RemoveCore(ctx, 1))
		tells("1 stops")
		_, err := m.AddCore(ctx)
		must(t, err)
		tells("1 starts")
		failed := m.Core(2)
		breakCore(m, 2)
		eventually(t, ctx, "the end of the core", failed.Gone)
		tells("2 stops")
		must(t, m.Shutdown(ctx))
		tells("0 stops", "1 stops")
	})
}
