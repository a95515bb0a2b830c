//go:build !race

package control_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// simMutants are the bugs that a build with -tags mutants can have. The
// simulator has to find each of them within a thousand seeds.
var simMutants = []string{
	"ack-too-high", "forget-requeue", "swap-events", "replay-behind", "keep-in-seq", "lose-notify",
	"ack-undispatched", "leave-in-throttle", "move-unannounced", "leak-unsent", "stay-in-line",
	"ignore-wait", "silent-reset",
}

// TestSimulationNoticesBugs tests the simulator: with a bug it must fail.
func TestSimulationNoticesBugs(t *testing.T) {
	program := filepath.Join(t.TempDir(), "mutants.test")
	build := exec.Command("go", "test", "-c", "-tags=mutants", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	run := func(t *testing.T, mutant string, first, seeds int) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestSimulation$", "-sim.parallel=1",
			fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.seeds=%d", seeds))
		cmd.Env = append(os.Environ(), "RINGMSGR_MUTANT="+mutant, "GOMAXPROCS=1")
		return cmd.CombinedOutput()
	}
	t.Run("none", func(t *testing.T) {
		if out, err := run(t, "", 1, 20); err != nil {
			t.Fatalf("without a bug: %v\n%s", err, out)
		}
	})
	for _, mutant := range simMutants {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, mutant, 1, 250)
			if err == nil {
				out, err = run(t, mutant, 251, 750)
			}
			if err == nil {
				t.Fatal("1000 seeds did not notice it")
			}
			// A seed fails, or something that should happen never does.
			found := firstLine(out, ": seed ")
			if found == nil {
				found = firstLine(out, "never happened")
			}
			if found == nil {
				t.Fatalf("it fails, but the simulator does not say why: %v\n%s", err, out)
			}
			t.Logf("%s", found)
		})
	}
}

// firstLine is the first line that has a word.
func firstLine(out []byte, word string) []byte {
	for line := range bytes.Lines(out) {
		if bytes.Contains(line, []byte(word)) {
			return bytes.TrimSpace(line)
		}
	}
	return nil
}
