//go:build !race

package sim_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// simChild marks a process that runs a part of the seeds.
var simChild = flag.Bool("sim.child", false, "run the seeds here and report what they covered")

// simChunk is how many seeds one process runs: enough that starting it costs
// nothing, and few enough that all processes end together.
const simChunk = 100

const simReportPrefix = "simulation covered "

// simReport is what a child says when all its seeds passed.
func simReport(c *simCover) string {
	b, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return simReportPrefix + string(b)
}

// simProcesses shares the seeds out to processes of one CPU each.
func simProcesses(t *testing.T, seeds int, cover *simCover) {
	var mu sync.Mutex
	next, end := *simFirst, *simFirst+uint64(seeds)
	take := func() (first, n uint64) {
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			return 0, 0
		}
		first, n = next, min(end-next, simChunk)
		next += n
		return first, n
	}
	var all sync.WaitGroup
	for range *simParallel {
		all.Go(func() {
			for {
				first, n := take()
				if n == 0 {
					return
				}
				c, err := simProcess(t.Name(), first, n)
				mu.Lock()
				if err != nil {
					t.Error(err)
				} else {
					cover.add(c)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// simProcess runs a part of the seeds of a test in a process of its own.
func simProcess(test string, first, n uint64) (*simCover, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-sim.child", "-sim.parallel=1",
		fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.seeds=%d", n), "-sim.protocol="+*simOneProtocol)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("seeds %d to %d: %w\n%s", first, first+n-1, err, bytes.TrimSpace(out))
	}
	for line := range strings.Lines(string(out)) {
		if report, ok := strings.CutPrefix(line, simReportPrefix); ok {
			c := new(simCover)
			if err := json.Unmarshal([]byte(report), c); err != nil {
				return nil, fmt.Errorf("seeds %d to %d: %w", first, first+n-1, err)
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("seeds %d to %d: no report in %q", first, first+n-1, out)
}
