//go:build !race

package sim_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// buildMutants makes one program that has all bugs, of which the environment
// chooses one.
func buildMutants(t *testing.T) (program string, names []string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, err := parseMutants(string(text))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := applyMutants(root, list)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := writeOverlay(root, dir, changed)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "mutants.test")
	build := exec.Command("go", "test", "-c", "-overlay="+overlay, "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	for _, m := range list {
		names = append(names, m.name)
	}
	return program, names
}

// TestSimulationNoticesBugs tests the simulator: with a bug it must fail, within
// a thousand seeds.
// Matrix: V1-11
func TestSimulationNoticesBugs(t *testing.T) {
	program, names := buildMutants(t)
	run := func(t *testing.T, mutant string, first, seeds int) ([]byte, error) {
		test := "TestSimulation"
		if strings.HasPrefix(mutant, "adversary-") {
			test = "TestAdversary"
		}
		protocol := simMsgr2
		if strings.HasPrefix(strings.TrimPrefix(mutant, "adversary-"), "msgr1-") {
			protocol = simMsgr1
		}
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+test+"$", "-sim.parallel=1", "-sim.protocol="+string(protocol),
			fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.seeds=%d", seeds))
		cmd.Env = append(os.Environ(), mutantEnv+"="+mutant, "GOMAXPROCS=1")
		return cmd.CombinedOutput()
	}
	t.Run("none", func(t *testing.T) {
		if out, err := run(t, "", 1, 20); err != nil {
			t.Fatalf("without a bug: %v\n%s", err, out)
		}
	})
	for _, mutant := range names {
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
