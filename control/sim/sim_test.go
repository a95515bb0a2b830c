//go:build !race

// The simulation is one goroutine at a time, in an order that the race
// detector's scheduler, which is random on purpose, would spoil. What it checks
// of memory comes with the tag "invariants".

package sim_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/pair"
)

var (
	simSeeds    = flag.Int("sim.seeds", 1000, "seeds that the simulator runs")
	simFirst    = flag.Uint64("sim.first", 1, "first seed")
	simTrace    = flag.Bool("sim.trace", false, "print the trace of every seed")
	simParallel = flag.Int("sim.parallel", runtime.NumCPU(), "processes that share the seeds")
)

// simRegressions are seeds that found a bug, each with what it was.
var simRegressions = []struct {
	seed     uint64
	protocol simProtocol
	was      string
}{
	{93, simMsgr2, "none yet: it is the quickest to notice the mutant swap-events"},
	{287, simMsgr2, "a connection that its user had marked down acknowledged messages that nobody got"},
	{10672, simMsgr2, "a session followed a socket to a core that had been removed, and was accepted by no core"},
	{93874, simMsgr2, "the same, of a core that ended while the session was on its way"},
	{10117, simMsgr2, "a session that a held up CLIENT_IDENT had opened was resumed with the sequences of the one before"},
	{443, simMsgr2, "a connection that had ended stayed in the line of its throttle"},
	{67, simMsgr1, "a new connection did not open to a peer that resumed its session with the one before"},
	{478, simMsgr1, "a handshake that a Rebind overtook opened a session with the wrong peer"},
	{17146, simMsgr1, "two nodes gave way to each other for ever: a session that was never open kept connect_seq 0 when a takeover broke off"},
	{6395, simMsgr1, "a write that failed as a socket was given to its handler was told to nobody: a session was ready without a socket"},
}

// runSeed is one whole simulation.
func runSeed(t testing.TB, seed uint64, trace io.Writer) *world {
	return runSeedIn(t, seed, protocolOf(seed), trace)
}

func runSeedIn(t testing.TB, seed uint64, protocol simProtocol, trace io.Writer) *world {
	return newWorld(t, seed, protocol, trace).simulate()
}

// simulate is the whole course of a world.
func (w *world) simulate() *world {
	for range w.plan.actions {
		w.births(false)
		w.act()
		w.postings.act()
		w.run(w.span(400 * time.Millisecond))
		w.checkDoubts(false)
		if w.failed {
			break
		}
	}
	w.finish()
	if !w.failed {
		w.check()
	}
	for _, n := range w.nodes {
		n.shutdown()
	}
	w.postings.check()
	w.cover.Seeds++
	w.cover.NetResets += w.net.Counts().Resets
	return w
}

// TestSimulation runs seeds, in several processes if there are many of them.
// Matrix: SE-36, SE-45, RA-02, RA-03, RA-04, RA-05, RA-06, RA-07, RA-10, RA-11, RA-12, RA-13, RA-18, RA-19, RA-20
// Matrix: RA-21, RA-22, RP-11, FT-26, FT-30, FT-32, TH-14, IO-20, IO-23, V1-11, INV-01, INV-03, INV-04
func TestSimulation(t *testing.T) {
	cover := new(simCover)
	if *simParallel > 1 && *simSeeds >= 100 && !*simTrace {
		simProcesses(t, *simSeeds, cover)
	} else {
		simHere(t, *simSeeds, cover, runSeed)
	}
	if !t.Failed() && *simSeeds >= 200 {
		cover.check(t)
	}
}

// simHere runs the seeds in this process.
func simHere(t *testing.T, seeds int, cover *simCover, run func(t testing.TB, seed uint64, trace io.Writer) *world) {
	// What becomes runnable together runs in one order.
	defer pair.OnOneProcessor()()
	var trace io.Writer
	if *simTrace {
		trace = os.Stdout
	}
	for i := range seeds {
		seed := *simFirst + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			cover.add(run(t, seed, trace).cover)
		})
		if t.Failed() {
			return
		}
	}
	if *simChild {
		fmt.Println(simReport(cover))
	}
}

// TestSimulationFindsOldBugs runs the seeds that once found one.
func TestSimulationFindsOldBugs(t *testing.T) {
	defer pair.OnOneProcessor()()
	for _, r := range simRegressions {
		t.Run(fmt.Sprint(r.seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if runSeedIn(t, r.seed, r.protocol, nil); t.Failed() {
					t.Logf("once it was: %s", r.was)
				}
			})
		})
	}
}
