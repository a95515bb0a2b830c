//go:build !race

package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// buildMutants makes one program that has all bugs, of which the environment
// chooses one.
func buildMutants(t *testing.T) (program string, list []*mutant) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, err = parseMutants(string(text))
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
	return program, list
}

// TestSimulationNoticesBugs tests the simulator: with a bug it must fail, within
// a thousand seeds.
// Matrix: V1-11
func TestSimulationNoticesBugs(t *testing.T) {
	program, list := buildMutants(t)
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
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			var out []byte
			var err error
			if m.seed > 0 { // the others show the same, but it takes longer to find one of them
				out, err = run(t, m.name, m.seed, 1)
			}
			if err == nil {
				out, err = run(t, m.name, 1, 250)
			}
			if err == nil {
				out, err = run(t, m.name, 251, 750)
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

// mutant is a bug that the simulator must find.
type mutant struct {
	name  string
	seed  int // one that has noticed it, 0 if none is known
	edits []*edit
}

// edit is one change of the product's source.
type edit struct {
	file     string // below the module's root
	old, new string // whole lines
}

// mutantEnv names the bug that a program has which was built with all of them.
const mutantEnv = "RINGMSGR_MUTANT"

// mutantWord stands in new lines for the switch of the bug.
const mutantWord = "MUTANT"

// parseMutants reads testdata/mutants.txt, which says how it is written.
func parseMutants(text string) (list []*mutant, err error) {
	var m *mutant // the last one
	var e *edit   // its last one, nil: it has none yet
	number := 0
	for line := range strings.Lines(text) {
		number++
		key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.TrimSpace(line) == "", line[0] == '#':
		case key == "mutant":
			m, e = &mutant{name: rest}, nil
			list = append(list, m)
		case key == "seed" && m != nil:
			if m.seed, err = strconv.Atoi(rest); err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
		case key == "file" && m != nil:
			e = &edit{file: rest}
			m.edits = append(m.edits, e)
		case line[0] == '-' && e != nil && e.new == "":
			e.old += line[1:]
		case line[0] == '+' && e != nil && e.old != "":
			e.new += line[1:]
		case m != nil && e == nil: // a line of its description
		default:
			return nil, fmt.Errorf("line %d is out of place: %q", number, line)
		}
	}
	return list, nil
}

// applyMutants makes the edits of all mutants in the sources below root, and returns the
// files that change.
func applyMutants(root string, list []*mutant) (map[string]string, error) {
	changed := make(map[string]string)
	for _, m := range list {
		if len(m.edits) == 0 {
			return nil, fmt.Errorf("mutant %s edits nothing", m.name)
		}
		for _, e := range m.edits {
			text, ok := changed[e.file]
			if !ok {
				b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file)))
				if err != nil {
					return nil, fmt.Errorf("mutant %s: %w", m.name, err)
				}
				text = string(b)
			}
			if n := countLines(text, e.old); n != 1 {
				return nil, fmt.Errorf("mutant %s: its old text is %d times in %s, want once:\n%s", m.name, n, e.file, e.old)
			}
			if !strings.Contains(e.new, mutantWord) {
				return nil, fmt.Errorf("mutant %s: its new text for %s has no %s:\n%s", m.name, e.file, mutantWord, e.new)
			}
			changed[e.file] = replaceLines(text, e.old, strings.ReplaceAll(e.new, mutantWord, fmt.Sprintf("mutant(%q)", m.name)))
		}
	}
	return changed, nil
}

// countLines is how often whole lines are in a text.
func countLines(text, lines string) int {
	if lines == "" {
		return 0
	}
	n := 0
	for text = "\n" + text; ; n++ { // matches may share a line's end
		at := strings.Index(text, "\n"+lines)
		if at < 0 {
			return n
		}
		text = text[at+1:]
	}
}

// replaceLines puts other lines in the place of the first that match.
func replaceLines(text, old, lines string) string {
	return strings.Replace("\n"+text, "\n"+old, "\n"+lines, 1)[1:]
}

// writeOverlay writes the input of "go build -overlay": the changed files, and in each of their
// packages a function that says whether a bug is chosen.
func writeOverlay(root, dir string, changed map[string]string) (path string, err error) {
	replace := make(map[string]string)
	put := func(file, text string) error {
		at := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(root, filepath.FromSlash(file))] = at
		return os.WriteFile(at, []byte(text), 0o600)
	}
	packages := make(map[string]string) // directory to name
	for file, text := range changed {
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.PackageClauseOnly)
		if err != nil {
			return "", fmt.Errorf("the edits of %s: %w", file, err)
		}
		packages[filepath.Dir(file)] = f.Name.Name
		if err := put(file, text); err != nil {
			return "", err
		}
	}
	for at, name := range packages {
		text := fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar chosenMutant = os.Getenv(%q)\n\nfunc mutant(name string) bool { return name == chosenMutant }\n", name, mutantEnv)
		if err := put(filepath.Join(at, "mutant_overlay.go"), text); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}

func TestAMutantWhoseTextIsNotThereOnceIsNamed(t *testing.T) {
	root := t.TempDir()
	source := "package some\n\nvar once = 1\nvar twice = 2\nvar twice = 2\n"
	if err := os.WriteFile(filepath.Join(root, "some.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ edit, says string }{
		{"-var once = 1\n+var once = MUTANT\n", ""},
		{"-package some\n-\n-var once = 1\n+package some\n+\n+var once = MUTANT\n", ""},
		{"-var twice = 2\n+var twice = MUTANT\n", "2 times in some.go"},
		{"-var gone = 3\n+var gone = MUTANT\n", "0 times in some.go"},
		{"-once = 1\n+once = MUTANT\n", "0 times in some.go"},
		{"-var once =\n+var once = MUTANT\n", "0 times in some.go"},
		{"-var once = 1\n+var once = 4\n", "no MUTANT"},
		{"", "0 times in some.go"},
	} {
		list, err := parseMutants("# text\n\nmutant a-bug\nWhat it is.\nfile some.go\n" + c.edit)
		if err != nil {
			t.Errorf("%q: %v", c.edit, err)
			continue
		}
		changed, err := applyMutants(root, list)
		if c.says == "" {
			want := strings.Replace(source, "once = 1", `once = mutant("a-bug")`, 1)
			if err != nil || changed["some.go"] != want {
				t.Errorf("%q: %v, %q", c.edit, err, changed)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "a-bug") {
			t.Errorf("%q: %v, want a-bug and %q", c.edit, err, c.says)
		}
	}
}

func TestMutantsOutOfPlaceAreRefused(t *testing.T) {
	for _, text := range []string{
		"what it is\n", "file some.go\n", "-old\n", "mutant a\nfile b\n+new\n",
		"mutant a\nfile b\n-old\n+new\n-old\n", "mutant a\nfile b\n-old\n+new\nwhat it is\n",
	} {
		if list, err := parseMutants(text); err == nil {
			t.Errorf("%q: %v", text, list)
		}
	}
}
