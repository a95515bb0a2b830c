//go:build !race

// The simulation is one goroutine at a time, in an order that the race
// detector's scheduler, which is random on purpose, would spoil. What it checks
// of memory comes with the tag "invariants".

package sim_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

var (
	simSeeds = flag.Int("sim.seeds", 1000, "seeds that the simulator runs")
	simFirst = flag.Uint64("sim.first", 1, "first seed")
	simTrace = flag.Bool("sim.trace", false, "print the trace of every seed")
)

// regression is a seed that once found a bug.
type regression struct {
	seed     uint64
	protocol simProtocol
	was      string
}

var simRegressions = []regression{
	{287, simMsgr2, "a connection that its user had marked down acknowledged messages that nobody got"},
	{10672, simMsgr2, "a session followed a socket to a core that had been removed, and was accepted by no core"},
	{93874, simMsgr2, "the same, of a core that ended while the session was on its way"},
	{510010368, simMsgr2, "a clock was set back, and a CLIENT_IDENT older than the session took it over: a message came twice"},
	{443, simMsgr2, "a connection that had ended stayed in the line of its throttle"},
	{67, simMsgr1, "a new connection did not open to a peer that resumed its session with the one before"},
	{17146, simMsgr1, "two nodes gave way to each other for ever: a session that was never open kept connect_seq 0 when a takeover broke off"},
	{90005322, simMsgr1, "the same: a session that began anew kept the numbers that its peer knew before"},
	{6395, simMsgr1, "a write that failed as a socket was given to its handler was told to nobody: a session was ready without a socket"},
}

// runs is one whole simulation of a seed, by a protocol that the seed need not have; empty: by its own.
type runs func(t testing.TB, seed uint64, protocol simProtocol, trace io.Writer) *world

// runSeed is a simulation without an adversary.
func runSeed(t testing.TB, seed uint64, protocol simProtocol, trace io.Writer) *world {
	rng := rand.New(rand.NewPCG(seed, 99))
	plan := newPlan(rng)
	plan.resizes, plan.rebinds, plan.drains = seed%2 == 0, seed%3 == 1, seed%11 == 5
	plan.protocol = cmp.Or(protocol, protocolOf(seed, false))
	more := rand.New(rand.NewPCG(seed, 0x6d6f7265))
	if !oldBug(seed) {
		plan.learn(more)
	}
	w := newWorld(t, seed, plan, rng, more, trace, nil)
	for range w.plan.actions {
		w.births(false)
		w.act()
		w.run(w.span(400 * time.Millisecond))
		w.checkDoubts(false)
		if w.failed {
			break
		}
	}
	w.finish()
	w.starve()
	if !w.failed {
		w.check()
	}
	for _, n := range w.nodes {
		n.shutdown()
	}
	w.cover.Seeds++
	w.cover.NetResets += w.net.Counts().Resets
	w.cover.OurResets += w.net.Counts().Ours
	return w
}

// TestSimulation runs seeds, in several processes if there are many of them.
// Matrix: SE-05, SE-06, SE-17, SE-18, SE-19, SE-20, SE-22, SE-36, SE-40, SE-42, SE-45, RA-02, RA-03
// Matrix: RA-04, RA-05, RA-06, RA-07, RA-10, RA-11, RA-12, RA-13, RA-18, RA-19, RA-20, RA-21, RA-22
// Matrix: RP-07, RP-08, RP-09, RP-11, RP-13, SH-01, XC-07, KA-08, FT-26, FT-29, FT-30, FT-32, TH-14
// Matrix: IO-20, IO-23, V1-11, INV-01, INV-03, INV-04
func TestSimulation(t *testing.T) {
	if cover := runSeeds(t, *simSeeds, runSeed); !t.Failed() && *simSeeds >= 200 {
		cover.check(t)
	}
}

// runSeeds runs many seeds in several processes, few in this one.
func runSeeds(t *testing.T, seeds int, run runs) *simCover {
	t.Helper()
	cover := new(simCover)
	if *simChild || *simTrace || seeds < simChunk {
		simHere(t, seeds, cover, run)
		return cover
	}
	test, end := t.Name(), *simFirst+uint64(seeds)
	t.Run("processes", func(t *testing.T) { // of one CPU each
		for first := *simFirst; first < end; first += simChunk {
			t.Run(fmt.Sprint(first), func(one *testing.T) {
				if one.Parallel(); t.Failed() {
					return // one seed is enough
				}
				c, err := simProcess(test, first, min(end-first, simChunk))
				must(one, err)
				cover.mu.Lock()
				defer cover.mu.Unlock()
				cover.add(c)
			})
		}
	})
	return cover
}

// simHere runs the seeds in this process.
func simHere(t *testing.T, seeds int, cover *simCover, run runs) {
	// What becomes runnable together runs in one order.
	defer pair.OnOneProcessor()()
	var trace io.Writer
	if *simTrace {
		trace = os.Stdout
	}
	for i := range seeds {
		seed := *simFirst + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			cover.add(run(t, seed, "", trace).cover)
		})
		if t.Failed() {
			return
		}
	}
	if *simChild {
		b, err := json.Marshal(cover)
		must(t, err)
		fmt.Println(simReportPrefix + string(b))
	}
}

func TestSimulationFindsOldBugs(t *testing.T) { findOldBugs(t, simRegressions, runSeed) }

func findOldBugs(t *testing.T, list []regression, run runs) {
	t.Helper()
	defer pair.OnOneProcessor()()
	for _, r := range list {
		t.Run(fmt.Sprint(r.seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if run(t, r.seed, r.protocol, nil); t.Failed() {
					t.Logf("once it was: %s", r.was)
				}
			})
		})
	}
}

// simChild marks a process that runs a part of the seeds.
var simChild = flag.Bool("sim.child", false, "run the seeds here and report what they covered")

// simChunk is how many seeds one process runs: enough that starting it costs
// nothing, and few enough that all processes end together.
const simChunk = 100

// simReportPrefix begins the report of a child whose seeds all passed.
const simReportPrefix = "simulation covered "

// simProcess runs a part of the seeds of a test in a process of its own.
func simProcess(test string, first, n uint64) (*simCover, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-sim.child",
		fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.seeds=%d", n), "-sim.protocol="+*simOneProtocol)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("seeds %d to %d: %w\n%s", first, first+n-1, err, bytes.TrimSpace(out))
	}
	c, err := reported(out)
	if err != nil {
		return nil, fmt.Errorf("seeds %d to %d: %w", first, first+n-1, err)
	}
	return c, nil
}

// reported is the report in the output of a child.
func reported(out []byte) (*simCover, error) {
	for line := range strings.Lines(string(out)) {
		if report, ok := strings.CutPrefix(line, simReportPrefix); ok {
			c := new(simCover)
			return c, json.Unmarshal([]byte(report), c)
		}
	}
	return nil, fmt.Errorf("no report in %q", out)
}

// simCover counts the events of simulations, so that a simulator that stops to cover an event
// fails.
type simCover struct {
	Seeds, Steps                                         int
	Messages, Repeated, Kept, QueueFull                  int
	Blocked, Canceled                                    int
	Connects, Accepts, Replaced, Moves                   int
	Resets, ReplaceResets, RemoteResets, PartialResets   int
	Waits, Retries, GlobalRetries, ReconnectOKs          int
	Downs, DownInDispatch, DownInReplace, DeathInReplace int
	Shutdowns, Kills, Frozen, Cuts, Forgotten            int
	KeepaliveAcks, Breaks, NetResets, Paused             int
	Added, Removed, Migrated, MovedLive                  int
	Rebinds, RebindsDown                                 int
	Drains, Drained                                      int
	DriverFaults                                         int
	TookBuffers, LeftBuffers, NoBuffers                  int // of receiving
	Calls, Replies, LateReplies, TooManyCalls            int
	CallsUnsent, CallsLost, CallsCanceled                int
	Dues, DuesLost                                       int // replies that are due (Later)
	Postings, Posted, PostedReplies, TooManyPostings     int
	PostingsBack, PostingsLost                           int
	Pauses, Starved, OurResets                           int
	Opens1, Resumes1                                     int // of msgr1
	Waits1, Retries1, Resets1                            int // the answers of nodes that have it alone
	KeepaliveAcks1                                       int

	Acts map[string]int `json:",omitempty"` // of an adversary

	mu sync.Mutex // guards the counts of handshakes, and those of several processes
}

// count is how often an event happened, or an act of an adversary.
func (c *simCover) count(name string) int {
	if f := reflect.ValueOf(c).Elem().FieldByName(name); f.IsValid() {
		return int(f.Int())
	}
	return c.Acts[name]
}

// wrote counts a frame of a session handshake. Any goroutine.
func (c *simCover) wrote(tag frame.Tag) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch tag {
	case frame.TagWait:
		c.Waits++
	case frame.TagSessionRetry:
		c.Retries++
	case frame.TagSessionRetryGlobal:
		c.GlobalRetries++
	case frame.TagSessionReconnectOK:
		c.ReconnectOKs++
	}
}

func (c *simCover) struck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Breaks++
}

// add sums up.
func (c *simCover) add(o *simCover) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		if f := sum.Field(i); f.Kind() == reflect.Int {
			f.SetInt(f.Int() + more.Field(i).Int())
		}
	}
	for what, n := range o.Acts {
		if c.Acts == nil {
			c.Acts = make(map[string]int)
		}
		c.Acts[what] += n
	}
}

// simRare need many seeds to happen for certain. Messages that come again, to a
// receiver that has forgotten them, need not happen at all.
var simRare = map[string]int{
	"Canceled": 1000, "PartialResets": 1000, "GlobalRetries": 1000, "DownInReplace": 1000, "DeathInReplace": 1000,
	"Repeated": math.MaxInt,
}

// simOnly are the events that only one protocol has.
var simOnly = map[string]simProtocol{
	"Waits": simMsgr2, "Retries": simMsgr2, "GlobalRetries": simMsgr2, "ReconnectOKs": simMsgr2,
	"PartialResets": simMsgr2,
	"Opens1":        simMsgr1, "Resumes1": simMsgr1, "Waits1": simMsgr1, "Retries1": simMsgr1,
	"Resets1": simMsgr1, "KeepaliveAcks1": simMsgr1,
}

// check fails if something never happened that must have in so many seeds.
func (c *simCover) check(t *testing.T) {
	t.Helper()
	sum := reflect.ValueOf(c).Elem()
	for i := range sum.NumField() {
		f, name := sum.Field(i), sum.Type().Field(i).Name
		if only := simOnly[name]; f.Kind() != reflect.Int || *simOneProtocol != "" && only != "" &&
			only != simProtocol(*simOneProtocol) {
			continue
		}
		t.Logf("%-16s %d", name, f.Int())
		if f.Int() == 0 && c.Seeds >= simRare[name] {
			t.Errorf("%s never happened in %d seeds", name, c.Seeds)
		}
	}
}
