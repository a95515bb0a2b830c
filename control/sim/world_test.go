//go:build !race

package sim_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// world is one simulation.
type world struct {
	t       testing.TB
	seed    uint64
	plan    simPlan
	net     *simnet.Network
	faults  *faulty.Random // of drivers; nil in most
	rng     *rand.Rand
	more    *rand.Rand // of simPlan.learn
	nodes   []*node
	timers  simTimers
	quiet   bool  // no more faults
	woken   bool  // goroutines may have something to do
	turn    *node // whose core runs now
	core    int   // that core
	ready   []readyCore
	largest int64            // message sent
	lanes   map[uint64]*lane // by stream
	doubts  []doubt
	cover   *simCover
	live    *liveWorld // answers all messages; nil in most
	foe     *adversary // nil in most
	back    [][]byte   // memory that users had lent and have back
	hog     *channel   // the user at its far end keeps all that comes on it
	calm    calm
	failed  bool

	mu   sync.Mutex
	over []func() // what follows calls that have returned (apart); guarded by mu
}

type readyCore struct {
	n    *node
	core *simnet.Core
}

// newWorld is a world of a given plan.
func newWorld(t testing.TB, seed uint64, plan simPlan, rng, more *rand.Rand, trace io.Writer, live *liveWorld) *world {
	plan.net.ReceiveBuffers = receiveBuffersOf(seed)
	if trace != nil {
		fmt.Fprintf(trace, "%s: %s\n", plan.kind.name, plan)
	}
	plan.net.Trace = trace
	w := &world{
		live: live,
		t:    t, seed: seed, plan: plan, net: simnet.New(seed, plan.net), rng: rng, more: more,
		lanes: make(map[uint64]*lane), cover: new(simCover),
	}
	if plan.foe != nil {
		w.foe = newAdversary(w)
	} else if live == nil {
		w.faults = newSimFaults(seed)
	}
	for i := range plan.nodes {
		n := &node{w: w, id: i, host: w.net.Host(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}))}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	return w
}

// fail reports the first thing that is wrong, and how to see it again.
func (w *world) fail(format string, args ...any) {
	if w.failed {
		return
	}
	w.failed = true
	w.net.Note("FAILED")
	w.t.Errorf("seed %d (%s, %s) at %v: %s\nreplay: go test ./control/sim -run '%s$' %s -sim.trace",
		w.seed, w.plan.kind.name, w.plan.protocol, w.net.Now(), fmt.Sprintf(format, args...), w.test(), w.flags())
	if w.calm.disturbed() {
		w.t.Logf("the machine was busy: a step took %v, so the replay may take another course", w.calm.longest)
	}
}

// test is the name of the test that runs such worlds.
func (w *world) test() string {
	if w.foe != nil {
		return "TestAdversary"
	}
	return "TestSimulation"
}

// still lets all goroutines run until they wait for the world.
func (w *world) still() {
	w.woken = false
	synctest.Wait()
	w.calm.still()
	w.collect()
	w.mu.Lock()
	over := w.over
	w.over = nil
	w.mu.Unlock()
	for _, then := range over {
		then()
	}
}

// apart runs a call that waits on a goroutine of its own, and then, on that of the world, what follows.
func (w *world) apart(call, then func()) {
	w.woken = true
	go func() {
		call()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = append(w.over, then)
	}()
}

// wait runs f on a goroutine and the world until it is done.
func (w *world) wait(what string, f func()) {
	done := false
	w.apart(f, func() { done = true })
	for limit := w.net.Now() + 5*time.Minute; ; {
		if w.still(); done {
			return
		}
		if !w.step() || w.net.Now() > limit {
			w.t.Fatalf("seed %d: %s does not end", w.seed, what)
		}
	}
}

// step lets one thing happen: an event of the network, a turn of a core, or
// else time passes. It returns false if nothing will ever happen again.
func (w *world) step() bool {
	w.cover.Steps++
	now := w.net.Now()
	w.ready = w.ready[:0]
	next, any := w.net.Next()
	if any && next <= now {
		w.ready = append(w.ready, readyCore{})
	}
	due := func(at time.Duration) {
		if !any || at < next {
			next, any = at, true
		}
	}
	for _, n := range w.nodes {
		if n.m == nil {
			continue
		}
		if n.frozen > now {
			due(n.frozen)
			continue
		}
		for _, c := range n.plane.all() {
			at, ok := c.Deadline()
			if c.Busy() || n.holds(c.ID()) || ok && at <= now {
				w.ready = append(w.ready, readyCore{n, c})
			} else if ok {
				due(at)
			}
		}
	}
	switch {
	case len(w.ready) > 0:
		r := w.ready[0]
		if len(w.ready) > 1 {
			r = w.ready[w.rng.IntN(len(w.ready))]
		}
		if r.core == nil {
			w.net.Step()
			break
		}
		w.turn, w.core, w.woken = r.n, r.core.ID(), true
		if err := r.core.Turn(); err != nil {
			w.fail("turn: %v", err)
		}
		w.turn = nil
	case any:
		w.net.Advance(next)
	default:
		return false
	}
	if w.woken {
		w.still()
	}
	w.foe.watch()
	return true
}

// run lets the world go on for a span of virtual time.
func (w *world) run(span time.Duration) {
	over := false
	w.net.After(span, func() { over = true })
	for !over && !w.failed && w.step() {
	}
}

// hunt lets the world go on until found, for a while. It says whether that
// came.
func (w *world) hunt(found func() bool) bool {
	limit := w.net.Now() + 2*time.Second
	for range 400 {
		if found() {
			return true
		}
		if w.failed || w.net.Now() > limit || !w.step() {
			return false
		}
	}
	return false
}

// span is a random time below most.
func (w *world) span(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)))
}
