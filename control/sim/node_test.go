//go:build !race

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// node is one process: a messenger, and the messages that it has sent and received. It can end
// and begin anew, with another nonce.
type node struct {
	w       *world
	id      int
	life    int // number of the address, from 1: a process begins with one, and may have several
	process int // number of the process, from 1
	host    *simnet.Host
	born    time.Duration // when a dead one comes back
	skew    time.Duration // of its wall clock
	frozen  time.Duration // its cores stand still until then

	// Of this life.
	m         *control.Messenger    // nil while it is dead
	ending    bool                  // Shutdown runs
	rebinding bool                  // Rebind runs
	lowered   bool                  // a throttle was lowered below what it may hold
	plane     *plane                // its cores
	broken    map[int]faulty.Driver // drivers that fail, by core
	resizing  bool                  // a change of its cores is under way
	draining  []func()              // end drains under way
	policy    control.Policy
	addr      wire.Addr    // the first one
	addrs     wire.AddrVec // all, of a server
	channels  []*channel
	streams   map[uint64]*incoming
	conns     map[*control.Conn]*watch
	kept      []*control.Message // retained
	dues      int                // replies that are due
	posted    []*posting
	accepted  int // messages that Send took over
	freed     int // of these, released
}

// server says whether other nodes can connect to it.
func (n *node) server() bool { return n.id == 0 || n.w.plan.kind.both }

// name is the id of the entity.
func (n *node) name() string { return fmt.Sprint(n.id) }

// start begins a life of the node.
func (n *node) start() {
	w := n.w
	n.life++
	n.process++
	n.host.Revive()
	n.ending, n.lowered, n.resizing, n.frozen, n.accepted, n.freed, n.dues = false, false, false, 0, 0, 0, 0
	n.draining, n.channels, n.kept, n.posted = nil, nil, nil, nil
	n.plane = new(plane)
	n.streams = make(map[uint64]*incoming)
	n.conns = make(map[*control.Conn]*watch)
	typ, policy := wire.Client, w.plan.kind.dialler
	if n.server() {
		typ, policy = wire.OSD, w.plan.kind.server
	}
	n.policy = w.plan.policy(policy)
	nonce := uint32(1000*n.id + n.life)
	clock := simClock{n}
	dispatch := w.plan.dispatch
	if dispatch == 0 {
		dispatch = -1
	}
	var by probe.Probe
	if w.plan.breakEvery > 0 || w.seed%2 == 0 { // without a probe handshakes queue their writes
		by = &breaks{
			w: w, n: n, every: w.plan.breakEvery, rng: rand.New(rand.NewPCG(w.seed, uint64(nonce)+1<<32)), how: rand.New(rand.NewPCG(w.seed, uint64(nonce)+1<<33)),
		}
	}
	cores := loop.Config{Cores: 1 + w.rng.IntN(w.plan.cores), Wall: clock.Now}
	n.host.Run(&cores, n.plane.opened)
	n.breakDrivers(&cores)
	cfg := control.Config{
		Name: wire.EntityName{Type: typ, ID: n.name()}, Number: int64(n.id), Nonce: &nonce, Default: &n.policy,
		Plane:    cores,
		Protocol: control.Protocol{Rev0: w.plan.rev0}, Receiving: control.Receiving{Bytes: dispatch, Postings: w.plan.postingsMost},
		Sending:     control.Sending{QueueBytes: w.plan.queueBytes, QueueMessages: w.plan.queueMessages, Calls: w.plan.callsMost},
		Timeouts:    control.Timeouts{Idle: w.plan.idle, KeepaliveEvery: w.plan.every, Keepalive: w.plan.timeout},
		Diagnostics: control.Diagnostics{Probe: by, Requests: requestHooks},
		Logger:      n.logger(), Clock: clock, Rand: randReader{rand.New(rand.NewPCG(w.seed, uint64(nonce)))},
	}
	w.foe.configure(n, &cfg)
	m, err := control.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	n.m = m
	if err := m.Start(n.dispatcher()); err != nil {
		w.t.Fatal(err)
	}
	if !n.server() {
		return
	}
	w.wait("bind", func() {
		addrs, err := m.Bind(n.binds()...)
		if err != nil {
			w.fail("bind: %v", err)
			return
		}
		n.addr, n.addrs = addrs[0], addrs
	})
}

// end is the end of a life: by an orderly shutdown or, with abrupt, of the
// process, with silent of the whole machine. The node is back later.
func (n *node) end(abrupt, silent bool, later time.Duration) {
	w := n.w
	w.net.Note("end node %d abrupt=%v", n.id, abrupt)
	if abrupt {
		n.host.Die(silent)
	}
	n.frozen = 0
	n.shutdown()
	n.host.Die(silent)
	n.m = nil
	n.born = w.net.Now() + later
}

// shutdown ends the messenger and checks it.
func (n *node) shutdown() {
	w := n.w
	n.ending = true
	w.wait(fmt.Sprintf("shutdown of node %d", n.id), func() {
		if err := n.m.Shutdown(context.Background()); err != nil {
			w.fail("shutdown: %v", err)
		}
	})
	n.checkOver()
}

// births begins the lives whose time has come, or all of them.
func (w *world) births(all bool) {
	for _, n := range w.nodes {
		if n.m == nil && (all || n.born <= w.net.Now()) {
			n.start()
		}
	}
}

// logger shows state changes in the trace.
func (n *node) logger() *slog.Logger {
	if !*simTrace {
		return nil
	}
	return slog.New(n.traced())
}

// traced is the part of the trace that a messenger logs.
func (n *node) traced() slog.Handler {
	return slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Int("node", n.id)
		}
		return a
	}})
}

// Half of the seeds, the even ones, have nodes whose cores come and go.

// simCores is the largest number of cores that a node grows to.
const simCores = 5

// simPatience bounds the removal of a core, where it is bounded.
const simPatience = 300 * time.Millisecond

// plane has the cores of one life of a node: the world turns them.
type plane struct {
	mu   sync.Mutex     // a goroutine adds a core while the world turns the others
	list []*simnet.Core // by number
}

// opened takes a core that the messenger has started.
func (p *plane) opened(c *simnet.Core) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, _ := slices.BinarySearchFunc(p.list, c.ID(), func(o *simnet.Core, id int) int { return o.ID() - id })
	p.list = slices.Insert(slices.Clone(p.list), at, c)
}

// all are the cores that have not been removed, by number.
func (p *plane) all() []*simnet.Core {
	p.mu.Lock()
	defer p.mu.Unlock()
	stopped := func(c *simnet.Core) bool { return c.State() == loop.CoreStopped }
	if slices.ContainsFunc(p.list, stopped) {
		p.list = slices.DeleteFunc(slices.Clone(p.list), stopped)
	}
	return p.list
}

// cores are those that can be given work.
func (n *node) cores() (list []*simnet.Core) {
	for _, c := range n.plane.all() {
		if c.State() == loop.CoreRunning {
			list = append(list, c)
		}
	}
	return list
}

// resizeCores adds a core to a node, or removes one, while everything goes on.
func (w *world) resizeCores(n *node) {
	if !w.plan.resizes || n.resizing || n.ending {
		return
	}
	cores := n.cores()
	add := len(cores) == 1 || len(cores) < simCores && w.rng.IntN(2) == 0
	ctx, cancel := context.WithCancel(context.Background())
	process, life, m, cancelled := n.process, n.life, n.m, false // cancelled: patience may have ended before the core was empty
	n.resizing = true
	var err error
	over := func() {
		cancel()
		dies := life != n.life || n.ending // a process that dies loses its listeners first
		if process == n.process {
			n.resizing = false
		}
		if err != nil && !dies && !(cancelled && errors.Is(err, context.Canceled)) {
			w.fail("node %d: cores changed (add %v): %v", n.id, add, err)
		}
		w.net.Note("node %d: cores changed: %v", n.id, err)
	}
	if add {
		w.net.Note("node %d adds a core", n.id)
		w.cover.Added++
		w.apart(func() { _, err = m.AddCore(ctx) }, over)
		return
	}
	core := cores[w.rng.IntN(len(cores))].ID()
	w.net.Note("node %d removes core %d", n.id, core)
	w.cover.Removed++
	if w.rng.IntN(3) == 0 {
		w.net.After(w.span(simPatience), func() { cancelled, w.woken = true, true; cancel() })
	}
	w.apart(func() { err = m.RemoveCore(ctx, core) }, over)
}

// countMoved is a connection that came with its socket.
func (w *world) countMoved(c *control.Conn) {
	w.cover.Migrated++
	if c.State() == control.StateReady {
		w.cover.MovedLive++
	}
}

// simClock is a node's time for the control plane. Its timers may be set by
// any goroutine; they reach the network when all of them stand still.
type simClock struct {
	n *node
}

// simTimers are the timers that were set since the world last moved.
type simTimers struct {
	mu  sync.Mutex
	set []*simTimer
}

type simTimer struct {
	d    time.Duration
	f    func()
	over bool // run or stopped; guarded by simTimers.mu
}

func (c simClock) Now() time.Time {
	return time.Unix(1_700_000_000, 0).Add(c.n.w.net.Now() + c.n.skew)
}

func (c simClock) AfterFunc(d time.Duration, f func()) func() bool {
	ts := &c.n.w.timers
	t := &simTimer{d: d, f: f}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.set = append(ts.set, t)
	return func() bool { return ts.end(t) }
}

// end says whether the timer was still to come.
func (ts *simTimers) end(t *simTimer) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	was := t.over
	t.over = true
	return !was
}

// collect gives the new timers to the network.
func (w *world) collect() {
	w.timers.mu.Lock()
	set := w.timers.set
	w.timers.set = nil
	w.timers.mu.Unlock()
	for _, t := range set {
		w.net.After(t.d, func() {
			if w.timers.end(t) {
				w.woken = true
				go t.f()
			}
		})
	}
}

// randReader makes cookies and nonces repeatable.
type randReader struct{ r *rand.Rand }

func (r randReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.r.Uint32())
	}
	return len(p), nil
}
