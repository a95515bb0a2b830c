package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// resizeRounds is how often the tests add and remove cores.
func resizeRounds() int {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return 100
	}
	return 3
}

// coreEvents counts what no test of cores that come and go may see, and what it
// must.
type coreEvents struct {
	resets, remote, moved atomic.Int64
}

func (e *coreEvents) dispatcher(fast func(*control.Conn, *control.Message) bool) *control.Dispatcher {
	return &control.Dispatcher{
		Fast: fast,
		Reset: func(c *control.Conn, _ bool) {
			if !c.Info().Lossy { // the flows themselves tell of lossy ones
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
	flows   []*flow
	end     chan struct{}
	over    sync.Once // end is closed
	ended   sync.WaitGroup
	weak    bool // lossy flows may end
}

func newCoreBench(t *testing.T, cfg control.Config, backend uring.Backend) *coreBench {
	t.Helper()
	return newCoreBenchAt(t, cfg, backend, wire.AddrMsgr2)
}

// newCoreBenchAt is newCoreBench in the protocol of such an address.
func newCoreBenchAt(t *testing.T, cfg control.Config, backend uring.Backend, at wire.AddrType) *coreBench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*steerPatience)
	t.Cleanup(cancel)
	b := &coreBench{t: t, ctx: ctx, backend: backend, end: make(chan struct{})}
	lossy := control.StatelessServer()
	cfg.Name = wire.EntityName{Type: wire.OSD, ID: "0"}
	cfg.Policies = map[wire.EntityType]control.Policy{wire.Client: control.StatefulServer()}
	cfg.Default = &lossy
	if cfg.Plane.Open == nil {
		cfg.Plane.Driver.Backend = backend
	}
	b.server = b.messenger(cfg, b.events.dispatcher(echo))
	if _, err := b.server.Bind(wire.Addr{Type: at, AddrPort: loopback(0)}); err != nil {
		t.Fatal(err)
	}
	b.at = b.server.Addrs()[0]
	return b
}

func (b *coreBench) messenger(cfg control.Config, chain *control.Dispatcher) *control.Messenger {
	b.t.Helper()
	cfg.Timeouts.InitialBackoff, cfg.Timeouts.MaxBackoff, cfg.Timeouts.Handshake = time.Millisecond, 50*time.Millisecond, steerPatience
	m := startMessenger(b.t, cfg, chain)
	return m
}

// client is a messenger whose sessions are lossless, or lossy.
func (b *coreBench) client(lossy bool, cores int) *control.Messenger {
	name, policy := wire.EntityName{Type: wire.Client, ID: "c"}, control.LosslessClient()
	if lossy {
		name, policy = wire.EntityName{Type: wire.MDS, ID: "c"}, control.LossyClient()
	}
	return b.messenger(control.Config{
		Name: name, Default: &policy, Steer: control.SteerNone,
		Plane: loop.Config{Cores: cores, Driver: uring.Config{Backend: b.backend}},
	}, b.events.dispatcher(func(c *control.Conn, m *control.Message) bool {
		c.UserData().(*flow).echo(m.TID)
		return true
	}))
}

// flow sends numbered messages on one connection, and checks that each comes
// back once, in order.
type flow struct {
	t    *testing.T
	conn *control.Conn
	sent uint64
	came atomic.Uint64
	room chan struct{}
	weak bool // it may end
}

// flowWindow is the number of messages of a flow that are under way.
const flowWindow = 8

func (f *flow) echo(tid uint64) {
	if want := f.came.Load() + 1; tid != want {
		f.t.Errorf("conn %d: message %d came back, want %d", f.conn.ID(), tid, want)
	}
	f.came.Store(tid)
	f.room <- struct{}{}
}

// connect opens a connection; the options can forbid that an attempt fails.
func (b *coreBench) connect(m *control.Messenger, opts ...control.ConnectOption) *flow {
	f := &flow{t: b.t, room: make(chan struct{}, flowWindow)}
	for range flowWindow {
		f.room <- struct{}{}
	}
	c, err := m.Connect(b.at, wire.OSD, append(opts, control.Anonymous())...)
	if err != nil {
		b.t.Error(err)
		return nil
	}
	c.SetUserData(f)
	f.conn = c
	if err := c.WaitReady(b.ctx); err != nil {
		b.t.Errorf("connect: %v", err)
		return nil
	}
	return f
}

// push sends one message, whose size depends on its number.
func (f *flow) push(ctx context.Context) error {
	select {
	case <-f.room:
	case <-f.conn.Closed():
		return f.conn.Err()
	case <-ctx.Done():
		return fmt.Errorf("conn %d: message %d does not come back: %w", f.conn.ID(), f.came.Load()+1, context.Cause(ctx))
	}
	f.sent++
	size := 100
	if f.sent%64 == 0 {
		size = 100_000 // beyond what is parsed in place
	}
	m := control.NewMessage(1, []byte("front"), make([]byte, size))
	m.TID = f.sent
	return f.conn.Send(m)
}

// settle waits until everything has come back.
func (f *flow) settle(ctx context.Context) error {
	for range flowWindow {
		select {
		case <-f.room:
		case <-f.conn.Closed():
			if f.weak {
				return nil
			}
			return f.conn.Err()
		case <-ctx.Done():
			return fmt.Errorf("conn %d: %d of %d messages came back: %w", f.conn.ID(), f.came.Load(), f.sent, context.Cause(ctx))
		}
	}
	for range flowWindow {
		f.room <- struct{}{}
	}
	return nil
}

// run begins n lossless and n lossy flows, and returns their messengers. A
// lossless session has a messenger of its own: it is known by its address.
func (b *coreBench) run(n, cores int) (all []*control.Messenger) {
	lossy := b.client(true, cores)
	all = append(all, lossy)
	for range n {
		m := b.client(false, cores)
		all = append(all, m)
		b.flow(m)
		b.flow(lossy)
	}
	return all
}

// flow begins a flow under load.
func (b *coreBench) flow(m *control.Messenger) {
	f := b.connect(m)
	if f == nil {
		return
	}
	f.weak = b.weak && f.conn.Info().Lossy
	b.flows = append(b.flows, f)
	b.ended.Go(func() {
		for {
			select {
			case <-b.end:
				check(b.t, f.settle(b.ctx))
				return
			default:
			}
			if err := f.push(b.ctx); err != nil {
				if !f.weak || b.ctx.Err() != nil {
					b.t.Error(err)
				}
				return
			}
		}
	})
}

// newcomers connect, exchange something and leave, again and again. None of
// their attempts may fail.
func (b *coreBench) newcomers() (count *atomic.Int64) {
	count = new(atomic.Int64)
	m := b.client(true, 1)
	b.loop(func() bool {
		f := b.connect(m, control.Once())
		if f == nil {
			return false
		}
		for range 3 {
			if err := f.push(b.ctx); err != nil {
				b.t.Error(err)
				return false
			}
		}
		if err := f.settle(b.ctx); err != nil {
			b.t.Error(err)
			return false
		}
		f.conn.MarkDown()
		count.Add(1)
		return true
	})
	return count
}

// asks wants statistics, which are to be had at every moment.
func (b *coreBench) asks() {
	list := slices.Clone(b.flows)
	b.loop(func() bool {
		_, err := b.server.Stats()
		for _, f := range list {
			_, e := f.conn.Stats()
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

// progress waits until every flow has had some messages more come back.
func (b *coreBench) progress() {
	b.t.Helper()
	for _, f := range b.flows {
		from := f.came.Load()
		eventually(b.t, b.ctx, "progress", func() bool {
			return f.came.Load() >= from+10 || b.t.Failed() || f.weak && f.conn.State() == control.StateClosing
		})
	}
	if b.t.Failed() {
		b.t.FailNow()
	}
}

// halt ends the load, at the latest when the test ends.
func (b *coreBench) halt() {
	b.over.Do(func() { close(b.end) })
	b.ended.Wait()
}

// stop ends the load, and checks what must hold at the end.
func (b *coreBench) stop() {
	b.t.Helper()
	b.halt()
	if n := b.events.resets.Load() + b.events.remote.Load(); n != 0 {
		b.t.Errorf("%d sessions were lost", n)
	}
}

// unbroken checks that no flow has lost its TCP connection.
func (b *coreBench) unbroken() {
	b.t.Helper()
	for _, f := range b.flows {
		st, err := f.conn.Stats()
		if err != nil {
			b.t.Error(err)
		} else if st.Counters.Faults != 0 || st.Counters.Ready != 1 {
			b.t.Errorf("conn %d: %+v", f.conn.ID(), st.Counters)
		}
	}
}

func overCoreBackends(t *testing.T, f func(t *testing.T, backend uring.Backend)) {
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			nodetest.CheckLeaks(t)
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
			overCoreBackends(t, func(t *testing.T, backend uring.Backend) { comeAndGo(t, backend, steer, wire.AddrMsgr2) })
		})
	}
}

func comeAndGo(t *testing.T, backend uring.Backend, steer control.Steer, at wire.AddrType) {
	b := newCoreBenchAt(t, control.Config{Steer: steer, Plane: loop.Config{Cores: 2}}, backend, at)
	defer b.halt()
	all := append(b.run(3, 2)[:2], b.server) // a lossy client, a lossless one, the server
	newKnocker(t, b.at)
	b.asks()
	came := b.newcomers()
	for i := range resizeRounds() {
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
