//go:build !invariants && !race

package main

import (
	"math"
	"runtime"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// With the race detector pools drop items by chance; with invariants the holder of each message is noted.
// Matrix: RL-11
func TestSendAllocatesNothingPerMessage(t *testing.T) {
	s := serve(t, "--cores", "1")
	mallocs := func(n string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ringmsgr(t, "send", "--messages", n, "--depth", "64", s.addr).want(t, cli.OK)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	mallocs("100")
	// A busy machine has the runtime allocate for threads and timers, which only adds.
	least := math.Inf(1)
	for tries := 0; tries < 5 && least > 0.05; tries++ {
		few, many := mallocs("1000"), mallocs("51000")
		least = min(least, (float64(many)-float64(few))/50000)
	}
	if least > 0.05 {
		t.Errorf("%.3f allocations per message", least)
	}
}
