//go:build !race

package sim_test

import (
	"runtime"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// Goroutines that become runnable together run in one order only if nothing of
// the machine interrupts them: the runtime puts a goroutine that it preempts
// behind the others. It does so for two reasons. A garbage collection is the
// first: so there is none but between two steps. A goroutine that runs for 10 ms
// of real time is the second: a step takes microseconds, but when the machine is
// busy the process may have to wait within one. That cannot be prevented, but
// it is noticed.

const (
	// simSlice is the real time after which the runtime preempts.
	simSlice = 10 * time.Millisecond
	// simHeap is how much memory may be in use before garbage is collected, and
	// simGarbage how often the world looks.
	simHeap    = 64 << 20
	simGarbage = 64
)

// calm is how a world notices that the machine has disturbed it.
type calm struct {
	began   time.Duration // when all goroutines waited last, by the machine's clock
	longest time.Duration // from there to the next such moment
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
	// Goroutines that wake each other share one slice of time, and would go on
	// to share it: what comes next begins with a new one.
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
