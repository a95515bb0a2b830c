package control_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// coreEvents counts what no test of cores that come and go may see, and what it must.
type coreEvents struct {
	resets, remote, moved atomic.Int64
}

func (e *coreEvents) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		Reset: func(c *control.Conn, _ bool) {
			if !c.Info().Lossy { // the streams themselves tell of lossy ones
				e.resets.Add(1)
			}
		},
		RemoteReset: func(*control.Conn) { e.remote.Add(1) },
		Moved:       func(*control.Conn, int) { e.moved.Add(1) },
	}
}

// coreBench is a server with a stateful and a stateless policy, by the type of
// the peer, and what its clients have seen.
type coreBench struct {
	t       *testing.T
	ctx     context.Context
	backend uring.Backend
	events  coreEvents
	server  *control.Messenger
	at      wire.Addr
	streams []*stream
	end     chan struct{}
	over    sync.Once // end is closed
	ended   sync.WaitGroup
	weak    bool // lossy streams may end
}

func newCoreBench(t *testing.T, cfg control.Config, backend uring.Backend) *coreBench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	b := &coreBench{t: t, ctx: ctx, backend: backend, end: make(chan struct{})}
	lossy := control.StatelessServer()
	cfg.Name = wire.EntityName{Type: wire.OSD, ID: "0"}
	cfg.Policies = map[wire.EntityType]control.Policy{wire.Client: control.StatefulServer()}
	cfg.Default = &lossy
	if cfg.Plane.Open == nil {
		cfg.Plane.Driver.Backend = backend
	}
	cfg.Timeouts.Handshake = patience
	b.server = startMessenger(t, cfg, b.events.dispatcher(), echoAll())
	b.at = listenOn(t, b.server)
	return b
}

// client is a messenger whose sessions are lossless, or lossy.
func (b *coreBench) client(lossy bool, cores int) *control.Messenger {
	b.t.Helper()
	name, policy := wire.EntityName{Type: wire.Client, ID: "c"}, control.LosslessClient()
	if lossy {
		name, policy = wire.EntityName{Type: wire.MDS, ID: "c"}, control.LossyClient()
	}
	cfg := clientOf(b.backend, name, policy)
	cfg.Plane.Cores, cfg.Steer = cores, control.SteerNone
	return streamClient(b.t, cfg, b.events.dispatcher())
}

// connect opens a connection; the options can forbid that an attempt fails. nil: it is not ready.
func (b *coreBench) connect(m *control.Messenger, opts ...control.ConnectOption) *stream {
	s, err := openStream(b.t, m, b.at, append(opts, control.Anonymous())...)
	if err == nil {
		err = s.c.WaitReady(b.ctx)
	}
	if err != nil {
		b.t.Errorf("connect: %v", err)
		return nil
	}
	return s
}

// run begins n lossless and n lossy streams, and returns their messengers. A
// lossless session has a messenger of its own: it is known by its address.
func (b *coreBench) run(n, cores int) (all []*control.Messenger) {
	lossy := b.client(true, cores)
	all = append(all, lossy)
	for range n {
		m := b.client(false, cores)
		all = append(all, m)
		b.stream(m)
		b.stream(lossy)
	}
	return all
}

// stream begins a stream under load.
func (b *coreBench) stream(m *control.Messenger) {
	if s := b.connect(m); s != nil {
		s.weak = b.weak && s.c.Info().Lossy
		b.streams = append(b.streams, s)
		s.run()
	}
}

// newcomers connect, exchange something and leave, again and again. None of
// their attempts may fail.
func (b *coreBench) newcomers() (count *atomic.Int64) {
	count = new(atomic.Int64)
	m := b.client(true, 1)
	b.loop(func() bool {
		s := b.connect(m, control.Once())
		if s == nil {
			return false
		}
		if err := errors.Join(s.push(), s.push(), s.push(), s.settle(b.ctx)); err != nil {
			b.t.Error(err)
			return false
		}
		s.c.MarkDown()
		count.Add(1)
		return true
	})
	return count
}

// asks wants statistics, which are to be had at every moment.
func (b *coreBench) asks() {
	list := slices.Clone(b.streams)
	b.loop(func() bool {
		_, err := b.server.Stats()
		for _, s := range list {
			_, e := s.c.Stats()
			err = errors.Join(err, e)
		}
		if err != nil {
			b.t.Errorf("no statistics: %v", err)
		}
		return err == nil
	})
}

func (b *coreBench) loop(once func() bool) {
	b.ended.Go(func() {
		for {
			select {
			case <-b.end:
				return
			default:
			}
			if !once() {
				return
			}
		}
	})
}

// progress waits until every stream has had some echoes more.
func (b *coreBench) progress() {
	b.t.Helper()
	for _, s := range b.streams {
		s.progress(10)
	}
	if b.t.Failed() {
		b.t.FailNow()
	}
}

// halt ends the load, at the latest when the test ends.
func (b *coreBench) halt() {
	b.over.Do(func() { close(b.end) })
	b.ended.Wait()
	for _, s := range b.streams {
		s.end()
	}
}

// stop ends the load, and checks what must hold at the end.
func (b *coreBench) stop() {
	b.t.Helper()
	b.halt()
	if n := b.events.resets.Load() + b.events.remote.Load(); n != 0 {
		b.t.Errorf("%d sessions were lost", n)
	}
}

// unbroken checks that no stream has lost its TCP connection.
func (b *coreBench) unbroken() {
	b.t.Helper()
	for _, s := range b.streams {
		if st := connStats(b.t, s.c); st.Counters.Faults != 0 || st.Counters.Ready != 1 {
			b.t.Errorf("conn %d: %+v", s.c.ID(), st.Counters)
		}
	}
}

func overCoreBackends(t *testing.T, f func(t *testing.T, backend uring.Backend)) {
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			drivertest.LeavesNothing(t)
			f(t, backend)
		})
	}
}

// Cores come and go on both sides under load: every message comes back once
// and in order, on the TCP connection that it had, and nobody is refused.
func TestCoresComeAndGoUnderLoad(t *testing.T) {
	for _, steer := range []control.Steer{control.SteerNone, control.SteerHint} {
		t.Run(string(steer), func(t *testing.T) {
			if steer != control.SteerNone {
				needSteering(t)
			}
			overCoreBackends(t, func(t *testing.T, backend uring.Backend) { comeAndGo(t, backend, steer) })
		})
	}
}

func comeAndGo(t *testing.T, backend uring.Backend, steer control.Steer) {
	b := newCoreBench(t, control.Config{Steer: steer, Plane: loop.Config{Cores: 2}}, backend)
	defer b.halt()
	all := append(b.run(3, 2)[:2], b.server) // a lossy client, a lossless one, the server
	newKnocker(t, b.at)
	b.asks()
	came := b.newcomers()
	for i := range inLongForm(100, 3) {
		for _, m := range all {
			id, err := m.AddCore(b.ctx)
			must(t, err)
			b.progress()
			cores := m.Cores()
			if len(cores) != 3 || m.Core(id) == nil {
				t.Fatalf("%d cores, added %d", len(cores), id)
			}
			gone := cores[i%len(cores)]
			must(t, m.RemoveCore(b.ctx, gone.ID()))
			if got := m.Cores(); len(got) != 2 || slices.Contains(got, gone) {
				t.Fatalf("%d cores, removed %d", len(got), gone.ID())
			}
		}
		b.progress()
	}
	b.stop()
	b.unbroken()
	if came.Load() == 0 || b.events.moved.Load() == 0 {
		t.Errorf("%d newcomers, %d moves", came.Load(), b.events.moved.Load())
	}
	st := statsOf(t, b.server)
	if len(st.Cores) != 2 || st.Steering.Active != (steer != control.SteerNone) {
		t.Errorf("%d cores, steering %+v", len(st.Cores), st.Steering)
	}
	for _, c := range st.Cores {
		if c.State != "running" {
			t.Errorf("core %d is %s", c.Core, c.State)
		}
	}
}

// knockSome connects n times.
func (b *coreBench) knockSome(n int) {
	b.t.Helper()
	for i := range n {
		knock(b.t, netip.AddrPortFrom(source(i), 0), b.at.AddrPort)
	}
}

// A task that is posted as its connection leaves its core runs on the next one.
// The end of another core moves no connection.
func TestATaskFollowsItsConnection(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		ran := make(chan bool, 1)
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(&control.Dispatcher{Move: func(c *control.Conn, to int) {
			c.Post(&loop.Task{Run: func(at *loop.Core) { ran <- at == c.Core() && at.ID() == to }})
		}}), func(c *nodetest.NodeConfig) { c.Plane.Cores = 3 })
		send(t, nodeOf(t, v, "client.2", "LLC", 2).Dial(server), 1)
		back := first(t, ctx, server)
		must(t, server.RemoveCore(ctx, (back.Core().ID()+1)%3))
		before := back.Info().Placement.By
		must(t, server.RemoveCore(ctx, back.Core().ID()))
		if by := back.Info().Placement.By; before == stats.ByMove || by != stats.ByMove {
			t.Errorf("placed by %q after the end of another core, and by %q after that of its own", before, by)
		}
		if !arrives(t, "the task", ran) {
			t.Error("it runs on another core than its connection")
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
