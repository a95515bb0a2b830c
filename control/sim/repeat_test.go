//go:build !race

package sim_test

import (
	"bytes"
	"runtime"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/pair"
)

// Goroutines that become runnable together run in one order only if the machine does not
// interrupt them: the runtime puts a goroutine that it preempts at the end of the queue. It
// does so for two reasons. The first is a garbage collection: so there is none but between two
// steps. The second is a goroutine that runs for 10 ms of real time: a step takes microseconds,
// but on a busy machine the process may have to wait within a step. The simulator cannot
// prevent that, but it notices it.

const (
	// simSlice is the real time after which the runtime preempts.
	simSlice = 10 * time.Millisecond
	// simHeap is how much memory may be in use before garbage is collected, and
	// simGarbage how often the world looks.
	simHeap    = 64 << 20
	simGarbage = 64
)

// calm notices that the machine has disturbed a world.
type calm struct {
	began   time.Duration // when all goroutines waited last, by the machine's clock
	longest time.Duration // from began to the next such moment
	moments int
	heap    []metrics.Sample
}

// still is called while all goroutines but the caller's wait.
func (c *calm) still() {
	if c.moments > 0 {
		c.longest = max(c.longest, machineTime()-c.began)
	}
	if c.moments++; c.moments%simGarbage == 0 {
		c.collect()
	}
	// Goroutines that wake each other share one slice of time, and would go on to share it: the
	// next step begins with a new slice.
	runtime.Gosched()
	c.began = machineTime()
}

// disturbed says that a goroutine may have been preempted.
func (c *calm) disturbed() bool { return c.longest >= simSlice }

// collect collects garbage if there is much.
func (c *calm) collect() {
	if c.heap == nil {
		c.heap = []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	}
	if metrics.Read(c.heap); c.heap[0].Value.Uint64() > simHeap {
		runtime.GC()
	}
}

// machineTime is real time: that of package time is the bubble's.
func machineTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails for unknown clocks only
	return time.Duration(ts.Nano())
}

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
func repeats(t *testing.T, seed uint64, run runs) {
	t.Helper()
	for try := 1; !twice(t, seed, run); try++ {
		if try == calmPairs {
			t.Fatalf("seed %d: the machine disturbs every run", seed)
		}
	}
}

// twice runs a seed twice and compares. It returns false if that says nothing,
// as the machine has disturbed a run.
func twice(t *testing.T, seed uint64, run runs) bool {
	t.Helper()
	var worlds [2]*world
	var traces [2]bytes.Buffer
	for i := range worlds {
		synctest.Test(t, func(t *testing.T) { worlds[i] = run(t, seed, "", &traces[i]) })
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
