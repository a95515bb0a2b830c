//go:build !race

package sim_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// node is one process: a messenger and what it has sent and received. It can
// end and begin anew, under another nonce.
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
	resizing  *resize               // under way
	policy    control.Policy
	addr      wire.Addr    // the first one
	addrs     wire.AddrVec // all, of a server
	channels  []*channel
	streams   map[uint64]*incoming
	conns     map[*control.Conn]*watch
	kept      []*control.Message // retained
	accepted  int                // messages that Send took over
	freed     int                // of these, released

	mu       sync.Mutex
	finished []*blockedSend // of SendContext; guarded by mu
	changed  []*resize      // ended; guarded by mu
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
	n.ending, n.lowered, n.frozen, n.accepted, n.freed = false, false, 0, 0, 0
	n.resizing, n.channels, n.kept = nil, nil, nil
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
	if w.plan.breakEvery > 0 || w.seed%2 == 0 { // else handshakes queue what they write
		by = &breaks{w: w, rng: rand.New(rand.NewPCG(w.seed, uint64(nonce)+1<<32)), every: w.plan.breakEvery}
	}
	cores := loop.Config{Cores: 1 + w.rng.IntN(w.plan.cores), Wall: clock.Now}
	n.host.Run(&cores, n.plane.opened)
	n.breakDrivers(&cores)
	cfg := control.Config{
		Name: wire.EntityName{Type: typ, ID: n.name()}, Number: int64(n.id), Nonce: &nonce, Default: &n.policy,
		Plane:    cores,
		Protocol: control.Protocol{Rev0: w.plan.rev0}, Sending: control.Sending{QueueBytes: w.plan.queueBytes, QueueMessages: w.plan.queueMessages}, Receiving: control.Receiving{Bytes: dispatch},
		Timeouts:    control.Timeouts{Idle: w.plan.idle, KeepaliveEvery: w.plan.every, Keepalive: w.plan.timeout},
		Diagnostics: control.Diagnostics{Probe: by},
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

// shutdown ends the messenger and checks what must be true of it then.
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
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Int("node", n.id)
		}
		return a
	}}))
}
