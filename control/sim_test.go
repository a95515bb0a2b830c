//go:build !race

// The simulation is one goroutine at a time, in an order that the race
// detector's scheduler, which is random on purpose, would spoil. What it checks
// of memory comes with the tag "invariants".

package control_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var (
	simSeeds    = flag.Int("sim.seeds", 1000, "seeds that the simulator runs")
	simFirst    = flag.Uint64("sim.first", 1, "first seed")
	simTrace    = flag.Bool("sim.trace", false, "print the trace of every seed")
	simParallel = flag.Int("sim.parallel", runtime.NumCPU(), "processes that share the seeds")
)

// simRegressions are seeds that found a bug, each with what it was.
var simRegressions = []struct {
	seed uint64
	was  string
}{
	{93, "none yet: it is the quickest to notice the mutant swap-events"},
	{287, "a connection that its user had marked down acknowledged messages that nobody got"},
	{10672, "a session followed a socket to a core that had been removed, and was accepted by no core"},
	{93874, "the same, of a core that ended while the session was on its way"},
	{10117, "a session that a held up CLIENT_IDENT had opened was resumed with the sequences of the one before"},
	{443, "a connection that had ended stayed in the line of its throttle"},
}

// runSeed is one whole simulation.
func runSeed(t testing.TB, seed uint64, trace io.Writer) (hash uint64, cover *simCover) {
	w := newWorld(t, seed, trace)
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
	if !w.failed {
		w.check()
	}
	for _, n := range w.nodes {
		n.shutdown()
	}
	w.cover.Seeds++
	w.cover.NetResets += w.net.Counts().Resets
	return w.net.Hash(), w.cover
}

// TestSimulation runs seeds, in several processes if there are many of them.
func TestSimulation(t *testing.T) {
	cover := new(simCover)
	if *simParallel > 1 && *simSeeds >= 100 && !*simTrace {
		simProcesses(t, cover)
	} else {
		simHere(t, cover)
	}
	if !t.Failed() && *simSeeds >= 200 {
		cover.check(t)
	}
}

// simHere runs the seeds in this process.
func simHere(t *testing.T, cover *simCover) {
	// One goroutine at a time: what becomes runnable together runs in one order.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var trace io.Writer
	if *simTrace {
		trace = os.Stdout
	}
	for i := range *simSeeds {
		seed := *simFirst + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			_, c := runSeed(t, seed, trace)
			cover.add(c)
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
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, r := range simRegressions {
		t.Run(fmt.Sprint(r.seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if runSeed(t, r.seed, nil); t.Failed() {
					t.Logf("once it was: %s", r.was)
				}
			})
		})
	}
}
