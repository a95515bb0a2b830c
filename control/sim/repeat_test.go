//go:build !race

package sim_test

import (
	"bytes"
	"io"
	"runtime/debug"
	"testing"
	"testing/synctest"

	"github.com/ringmsgr/ringmsgr/control/pair"
)

// calmPairs is how often two runs are compared again that differ, as long as the
// machine has disturbed one of them.
const calmPairs = 50

func TestSimulationIsRepeatable(t *testing.T) {
	defer pair.OnOneProcessor()()
	for seed := uint64(1000); seed < 1020; seed++ {
		repeats(t, seed, runSeed)
	}
}

// repeats fails if two runs of a seed differ.
func repeats(t *testing.T, seed uint64, run func(t testing.TB, seed uint64, trace io.Writer) *world) {
	t.Helper()
	for try := 1; !twice(t, seed, run); try++ {
		if try == calmPairs {
			t.Fatalf("seed %d: the machine disturbs every run", seed)
		}
	}
}

// twice runs a seed twice and compares. It returns false if that says nothing,
// as the machine has disturbed a run.
func twice(t *testing.T, seed uint64, run func(t testing.TB, seed uint64, trace io.Writer) *world) bool {
	t.Helper()
	var worlds [2]*world
	var traces [2]bytes.Buffer
	for i := range worlds {
		synctest.Test(t, func(t *testing.T) { worlds[i] = run(t, seed, &traces[i]) })
	}
	if worlds[0].net.Hash() == worlds[1].net.Hash() && bytes.Equal(traces[0].Bytes(), traces[1].Bytes()) {
		return true
	}
	longest := max(worlds[0].calm.longest, worlds[1].calm.longest)
	if longest < simSlice {
		t.Fatalf("seed %d: two runs differ", seed)
	}
	t.Logf("seed %d: two runs differ, but the machine let one of them wait: a step took %v", seed, longest)
	return false
}

func TestASimulationNoticesThatTheMachineDisturbsIt(t *testing.T) {
	for _, busy := range []bool{false, true} {
		disturbed := true
		// The machine itself may disturb what should be calm.
		for try := 0; disturbed && try < calmPairs; try++ {
			var c calm
			c.still()
			for busy && machineTime()-c.began < simSlice {
			}
			c.still()
			if disturbed = c.disturbed(); busy {
				break
			}
		}
		if disturbed != busy {
			t.Errorf("a step that lasts for long: %v, noticed: %v", busy, disturbed)
		}
	}
}

func TestASimulationCollectsGarbageBetweenStepsOnly(t *testing.T) {
	end := pair.OnOneProcessor()
	defer func() { end() }()
	collections := func() int64 {
		var s debug.GCStats
		debug.ReadGCStats(&s)
		return s.NumGC
	}
	before := collections()
	var kept [][]byte
	for range 2 * simHeap >> 20 {
		kept = append(kept, make([]byte, 1<<20))
	}
	if n := collections() - before; n != 0 {
		t.Errorf("%d collections within a step that makes %d MiB", n, len(kept))
	}
	var c calm
	for range simGarbage {
		c.still()
	}
	if n := collections() - before; n != 1 {
		t.Errorf("%d collections in %d moments at which all goroutines wait", n, simGarbage)
	}
}
