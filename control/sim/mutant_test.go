//go:build !race

package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// buildMutants makes one program that has all bugs, of which the environment
// chooses one.
func buildMutants(t *testing.T) (program string, list []*mutant) {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	text, err := os.ReadFile("testdata/mutants.txt")
	must(t, err)
	list, edits := parseMutants(string(text))
	dir := t.TempDir()
	overlay := writeOverlay(t, dir, applyMutants(t, root, edits))
	program = filepath.Join(dir, "mutants.test")
	build := exec.Command("go", "test", "-c", "-overlay="+overlay, "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return program, list
}

var must = drivertest.Must

// TestSimulationNoticesBugs tests the simulator: with a bug it must fail, within
// a thousand seeds.
// Matrix: V1-11
func TestSimulationNoticesBugs(t *testing.T) {
	program, list := buildMutants(t)
	// The name of a mutant begins with the worlds that it is for. The program has the chosen one; empty: none.
	run := func(t *testing.T, mutant, chosen string, first, seeds int) ([]byte, error) {
		test := "TestSimulation"
		if strings.HasPrefix(mutant, "adversary-") {
			test = "TestAdversary"
		}
		protocol := simMsgr2
		if strings.HasPrefix(strings.TrimPrefix(mutant, "adversary-"), "msgr1-") {
			protocol = simMsgr1
		}
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+test+"$", "-sim.child", "-sim.protocol="+string(protocol),
			fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.seeds=%d", seeds))
		cmd.Env = append(os.Environ(), mutantEnv+"="+chosen, "GOMAXPROCS=1")
		return cmd.CombinedOutput()
	}
	t.Run("none", func(t *testing.T) {
		if out, err := run(t, "", "", 1, 20); err != nil {
			t.Fatalf("without a bug: %v\n%s", err, out)
		}
	})
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			var out []byte
			var err error
			if m.seed > 0 { // the others show the same, but it takes longer to find one of them
				out, err = run(t, m.name, m.name, m.seed, 1)
			}
			if err == nil && m.misses != "" {
				whole, bad := run(t, m.name, "", m.seed, 1)
				must(t, bad)
				if a, b := happened(t, out, m.misses), happened(t, whole, m.misses); a == 0 && b > 0 {
					t.Logf("seed %d: %q happens %d times without the bug, and never with it", m.seed, m.misses, b)
					return
				}
			}
			if err == nil {
				out, err = run(t, m.name, m.name, 1, 250)
			}
			if err == nil {
				out, err = run(t, m.name, m.name, 251, 750)
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

// happened is how often an event happened in seeds that passed.
func happened(t *testing.T, out []byte, event string) int {
	t.Helper()
	cover, err := reported(out)
	must(t, err)
	return cover.count(event)
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

// mutant is a bug that the simulator must find.
type mutant struct {
	name string
	seed int // one that has noticed it, 0 if none is known
	// misses is an event of that seed which does not happen with the bug; empty: the seed fails.
	misses string
}

// edit is one change of the product's source.
type edit struct {
	mutant, file string
	old, new     string // whole lines
}

// mutantEnv names the bug that a program has which was built with all of them.
const mutantEnv = "RINGMSGR_MUTANT"

// mutantWord stands in new lines for the switch of the bug.
const mutantWord = "MUTANT"

// parseMutants reads testdata/mutants.txt, which says how it is written.
func parseMutants(text string) (list []*mutant, edits []*edit) {
	var m *mutant // the last one
	var e *edit   // its last one, nil: it has none yet
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case key == "mutant":
			m, e = &mutant{name: rest}, nil
			list = append(list, m)
		case key == "seed" && m != nil:
			m.seed, _ = strconv.Atoi(rest)
		case key == "misses" && m != nil:
			m.misses = rest
		case key == "file" && m != nil:
			e = &edit{mutant: m.name, file: rest}
			edits = append(edits, e)
		case line[0] == '-' && e != nil:
			e.old += line[1:]
		case line[0] == '+' && e != nil:
			e.new += line[1:]
		}
	}
	return list, edits
}

// applyMutants makes the edits in the sources below root, and returns the files that change, by
// their paths. The old text of each must be there once.
func applyMutants(t *testing.T, root string, edits []*edit) map[string]string {
	t.Helper()
	changed := make(map[string]string)
	for _, e := range edits {
		path := filepath.Join(root, filepath.FromSlash(e.file))
		text, ok := changed[path]
		if !ok {
			b, err := os.ReadFile(path)
			must(t, err)
			text = "\n" + string(b)
		}
		before, after, found := strings.Cut(text, "\n"+e.old)
		if again := strings.Contains("\n"+after, "\n"+e.old); !found || again || e.old == "" {
			t.Fatalf("mutant %s: its old text is not once in %s:\n%s", e.mutant, e.file, e.old)
		}
		if !strings.Contains(e.new, mutantWord) {
			t.Fatalf("mutant %s: its new text for %s has no %s:\n%s", e.mutant, e.file, mutantWord, e.new)
		}
		changed[path] = before + "\n" + strings.ReplaceAll(e.new, mutantWord, fmt.Sprintf("mutant(%q)", e.mutant)) + after
	}
	return changed
}

// writeOverlay writes the input of "go build -overlay": the changed files, and in each of their
// packages a function that says whether a bug is chosen.
func writeOverlay(t *testing.T, dir string, changed map[string]string) (path string) {
	t.Helper()
	replace := make(map[string]string)
	put := func(file, text string) {
		at := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[file] = at
		must(t, os.WriteFile(at, []byte(text), 0o600))
	}
	packages := make(map[string]string) // directory to name
	for file, text := range changed {
		_, clause, _ := strings.Cut(text, "\npackage ")
		packages[filepath.Dir(file)], _, _ = strings.Cut(clause, "\n")
		put(file, text)
	}
	for at, name := range packages {
		put(filepath.Join(at, "mutant_overlay.go"), fmt.Sprintf("package %s\n\nimport \"os\"\n\n"+
			"var chosenMutant = os.Getenv(%q)\n\nfunc mutant(name string) bool { return name == chosenMutant }\n", name, mutantEnv))
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	path = filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(path, b, 0o600))
	return path
}
