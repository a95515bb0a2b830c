package control_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func TestHandlersTasksAndTimersRunOnTheCoreThatTheyAreGiven(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const cores = 3
		fired := make(chan int, cores)
		var server *nodetest.Node
		var tasks [cores]loop.Task
		var timers [cores]loop.Timer
		for i := range cores {
			tasks[i].Run = func(c *loop.Core) {
				here(t, c)
				before := c.Now()
				timers[i].Fire = func(c *loop.Core, _ time.Duration) {
					here(t, c)
					if c.ID() != i || timers[i].Armed() || c.Now()-before < time.Millisecond {
						t.Errorf("core %d: timer %d, armed %v, after %v", c.ID(), i, timers[i].Armed(), c.Now()-before)
					}
					fired <- i
				}
				c.Arm(&timers[i], before+time.Millisecond)
			}
		}
		server = nodeOf(t, v, "osd.1", "SFS", 1, withChain(&control.Dispatcher{Fast: func(c *control.Conn, _ *control.Message) bool {
			here(t, c.Core())
			for i := range cores {
				server.Core(i).Post(&tasks[i])
			}
			return true
		}}), func(c *nodetest.NodeConfig) {
			c.Plane.Cores = cores
			placed(t, &c.Config)
		})
		if server.Core(cores) != nil || server.Core(-1) != nil {
			t.Error("there are more cores than were asked for")
		}
		conn := nodeOf(t, v, "client.2", "LLC", 2).Dial(server)
		send(t, conn, 1)
		var came []int
		for range cores {
			came = append(came, arrives(t, fmt.Sprint("one more timer than those of cores ", came), fired))
		}
		slices.Sort(came)
		if !slices.Equal(came, []int{0, 1, 2}) {
			t.Errorf("timers %v", came)
		}
	})
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
			if _, err := server.AddCore(ctx); err != nil {
				t.Fatal(err)
			}
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

// coreLog notes the hooks of cores.
type coreLog struct {
	mu   sync.Mutex
	list []string
}

func (l *coreLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, fmt.Sprintf(format, args...))
}

func (l *coreLog) check(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.list)
	if !slices.Equal(l.list, want) {
		t.Errorf("%q, want %q", l.list, want)
	}
	l.list = nil
}

func (l *coreLog) hooks(cfg *control.Config) {
	cfg.Plane.Started = func(c *loop.Core) error { l.add("%d starts", c.ID()); return nil }
	cfg.Plane.Ended = func(c *loop.Core) { l.add("%d stops", c.ID()) }
}

func TestHooksTellOfCoresThatComeAndGo(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		var log coreLog
		plane, breakCore := breakable(backend, 3)
		cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: plane}
		log.hooks(&cfg)
		m, err := control.New(cfg)
		must(t, err)
		ctx := deadline(t)
		log.check(t, "0 starts", "1 starts", "2 starts")
		must(t, m.RemoveCore(ctx, 1))
		log.check(t, "1 stops")
		if _, err := m.AddCore(ctx); err != nil {
			t.Fatal(err)
		}
		log.check(t, "1 starts")
		failed := m.Core(2)
		breakCore(m, 2)
		eventually(t, ctx, "the end of the core", failed.Gone)
		log.check(t, "2 stops")
		must(t, m.Shutdown(ctx))
		log.check(t, "0 stops", "1 stops")
	})
}

func TestTheConnectionToOurselvesHasNoCore(t *testing.T) {
	m := startMessenger(t, control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: loop.Config{Cores: 1}})
	c, err := m.Loopback()
	if err != nil || c.Core() != nil {
		t.Errorf("%v, %v", c.Core(), err)
	}
	done := make(chan struct{})
	c.Post(&loop.Task{Run: func(*loop.Core) { close(done) }})
	<-done
}

// Matrix: OB-03
func TestTheViewShowsTheCores(t *testing.T) {
	m := newMessenger(t, control.Config{
		Name:  wire.EntityName{Type: wire.OSD, ID: "0"},
		Plane: loop.Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}},
	})
	if len(m.Cores()) != 2 || m.Engine().Backend != uring.Epoll {
		t.Errorf("%d cores, %+v", len(m.Cores()), m.Engine())
	}
	must(t, m.RemoveCore(t.Context(), 0))
	if len(m.Cores()) != 1 {
		t.Errorf("%d cores, one was removed", len(m.Cores()))
	}
	if c := m.Core(1); c == nil || c.ID() != 1 {
		t.Errorf("core 1: %v", c)
	}
	if c := m.Core(0); c != nil {
		t.Errorf("core 0: %v", c)
	}
}
