package interop_test

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // the program of librados
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

var operations = flag.Int("librados.operations", 600, "how many operations on each kind of pool are compared with those of librados")

// action is an operation that both sides carry out, each in a pool of its own.
type action struct {
	step
	Namespace, Locator string
	Object             []byte
	Snap               int   // that a read sees, by its place among those that there are; -1: none
	Time               int64 // of a write, in seconds
	Steps              []step
}

// String is for failures.
func (a *action) String() string {
	b := fmt.Appendf(nil, "%s %q snap %d: %s", a.Kind, a.place(), a.Snap, &a.step)
	for i := range a.Steps {
		b = fmt.Appendf(b, "\n  %s", &a.Steps[i])
	}
	return string(b)
}

func (s *step) String() string {
	return fmt.Sprintf("%s offset %d number %d key %q to %q data %d * %.9q", s.Kind, s.Offset, s.Number, s.Key, s.To, len(s.Data), s.Data)
}

// place tells objects apart.
func (a *action) place() string { return fmt.Sprintf("%s/%s/%s", a.Namespace, a.Locator, a.Object) }

type step struct {
	Kind           string
	Offset, Number uint64
	Key, To, Data  []byte
}

// outcome is the result of an action. Version is the version of the object, where it is known.
type outcome struct {
	Errno   int
	Version uint64
	Results []stepOutcome // of the steps that have output, up to the first that failed
}

type stepOutcome struct {
	Errno   int
	Outputs [][]byte
}

// compare says whether both sides have the same outcome. After a failure, version and later outputs do not count.
func compare(ours, theirs outcome) (same bool) {
	if theirs.Errno != 0 {
		ours.Version, theirs.Version = 0, 0
		if i := slices.IndexFunc(ours.Results, func(r stepOutcome) bool { return r.Errno != 0 }); i >= 0 {
			ours.Results = ours.Results[:i+1]
		}
		theirs.Results = theirs.Results[:min(len(ours.Results), len(theirs.Results))]
	}
	return ours.Errno == theirs.Errno && ours.Version == theirs.Version && slices.EqualFunc(ours.Results, theirs.Results, func(a, b stepOutcome) bool {
		return a.Errno == b.Errno && slices.EqualFunc(a.Outputs, b.Outputs, bytes.Equal)
	})
}

// Random operations on random objects of random pools, namespaces and snapshots have the results, errnos, data and versions
// that they have through librados. The commands of our program, and the operations that have neither, do what they say.
// RINGMSGR_SAMPLE=SEED repeats a run.
// Matrix: IN-01, IN-13
func TestOperationsHaveTheOutcomeThatTheyHaveThroughLibrados(t *testing.T) {
	enabled(t)
	t.Parallel()
	seed := sample(t)
	c := startCluster(t, clusterConfig{
		auth: "cephx", mode: "crc", osds: 3, more: "mon debug no require bluestore for ec overwrites = true\ndebug ms = 0\n",
	})
	cl := dialCluster(t, c, "msgr2.1", uring.Auto)
	t.Run("commands", func(t *testing.T) { useCommands(t, c) }) // finds pools without objects
	t.Run("operations", func(t *testing.T) { useOperations(t, c, cl) })
	c.ceph("osd", "erasure-code-profile", "set", "three", "k=2", "m=1", "crush-failure-domain=osd")
	kinds := []string{"replicated", "erasure", "overwrites"}
	if major(t) >= 20 {
		kinds = append(kinds, "optimized")
	}
	for _, kind := range kinds {
		c.createPools(kind)
	}
	for i, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := within(t, patience+time.Duration(*operations)*50*time.Millisecond)
			p, err := cl.Pool(ctx, kind+"-ours")
			check(t, err)
			compareSides(t, c, &side{pool: p}, startTheirs(t, c, kind+"-theirs"), newGenerator(seed, uint64(i), kind), *operations)
		})
	}
}

// createPools makes a pool for each side. Both pools have the same groups, so that the versions of equal names rise alike.
func (c *cluster) createPools(kind string) {
	form, settings := "8 8 erasure three", []string{}
	switch kind {
	case "replicated":
		form, settings = "8 8 replicated", []string{"size 2"}
	case "overwrites":
		settings = []string{"allow_ec_overwrites true"}
	case "optimized":
		settings = []string{"allow_ec_overwrites true", "allow_ec_optimizations true"}
	}
	for _, side := range []string{"-ours", "-theirs"} {
		c.createPool(kind+side, form, settings...)
	}
}

// createPool makes a pool of so many groups, and then sets what is to be set.
func (c *cluster) createPool(name, form string, settings ...string) {
	c.t.Helper()
	commands := []string{"osd pool create " + name + " " + form}
	for _, s := range settings {
		commands = append(commands, "osd pool set "+name+" "+s)
	}
	c.cephAll(commands)
}

// sample is the seed of the random choices of a test, which it logs.
func sample(t *testing.T) (seed uint64) {
	t.Helper()
	seed = uint64(time.Now().UnixNano())
	if s := os.Getenv("RINGMSGR_SAMPLE"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		check(t, err)
	}
	t.Logf("RINGMSGR_SAMPLE=%d", seed)
	return seed
}

// compareSides has both sides carry out n actions, each at the same time.
func compareSides(t *testing.T, c *cluster, ours *side, theirs *theirs, g *generator, n int) {
	failed, kinds := 0, map[string]int{}
	for i := range n {
		a := g.action(len(ours.snaps))
		theirs.begin(t, &a)
		got, err := ours.run(t.Context(), &a)
		if err != nil {
			t.Fatalf("operation %d: %v: %v%s", i, &a, err, c.dead())
		}
		want, err := theirs.end()
		if err != nil {
			t.Fatalf("operation %d: %v: librados: %v%s", i, &a, err, c.dead())
		}
		if !compare(got, want) {
			t.Fatalf("operation %d: %v\nours   %.2000q\ntheirs %.2000q", i, &a, fmt.Sprint(got), fmt.Sprint(want))
		}
		kinds[a.Kind]++
		if want.Errno != 0 {
			failed++
		} else if want.Version > 0 {
			g.versions[a.place()] = want.Version
		}
	}
	t.Logf("%d operations, %d of which failed, on both sides alike: %v", n, failed, kinds)
	if failed < n/50 || failed > n-n/10 {
		t.Errorf("%d of %d operations fail: they are too much the same", failed, n)
	}
}

// dead says which OSDs have ended, and why if they say so.
func (c *cluster) dead() (text string) {
	for _, d := range c.osds {
		select {
		case <-d.gone:
			log, _ := os.ReadFile(d.logFile())
			why := abortion.Find(log)
			text += fmt.Sprintf("\n%s has ended: %v: %s", d.name, d.cmd.ProcessState, why)
		default:
		}
	}
	return text
}

// abortion is why an OSD ends itself.
var abortion = regexp.MustCompile(`(?m)^.*(FAILED ceph_assert|ceph_abort_msg|not handled on operation).*$`)

//go:embed testdata/librados.py
var libradosProgram []byte

// theirs is librados, in a program of its own.
type theirs struct {
	in    io.Writer
	lines chan []byte
	said  *bytes.Buffer
	gone  chan struct{}
}

func startTheirs(t *testing.T, c *cluster, pool string) *theirs {
	t.Helper()
	ceph, err := exec.LookPath("ceph")
	check(t, err)
	file := c.file(pool + ".py") // each program has its own: another one is written while it reads
	check(t, os.WriteFile(file, libradosProgram, 0o644))
	// The interpreter is that of the release, and finds its library.
	p := exec.Command(filepath.Join(filepath.Dir(ceph), "python3"), file, c.file("ceph.conf"), pool)
	p.Env = cephEnv()
	l := &theirs{lines: make(chan []byte), said: new(bytes.Buffer), gone: make(chan struct{})}
	p.Stderr = l.said
	l.in, err = p.StdinPipe()
	check(t, err)
	out, in, err := os.Pipe()
	check(t, err)
	p.Stdout = in
	check(t, startTied(p, func() { close(l.gone) }))
	check(t, in.Close())
	go func() {
		defer out.Close()
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			select {
			case l.lines <- line:
			case <-l.gone:
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // fails only if it is gone
		<-l.gone
	})
	return l
}

// begin has an action carried out.
func (l *theirs) begin(t *testing.T, a *action) {
	t.Helper()
	text, err := json.Marshal(a)
	check(t, err)
	_, err = l.in.Write(append(text, '\n'))
	check(t, err)
}

// end waits for the outcome of the action that was begun last. An OSD that ends, as some requests have it abort, never answers.
func (l *theirs) end() (o outcome, err error) {
	select {
	case line := <-l.lines:
		return o, json.Unmarshal(line, &o)
	case <-l.gone:
		return o, fmt.Errorf("it ends: %s", l.said)
	case <-time.After(patience):
		return o, context.DeadlineExceeded
	}
}
