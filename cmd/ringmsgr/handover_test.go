package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
)

func TestMain(m *testing.M) { clitest.Program(m, main) }

// serverChain is a serve in a process of its own, and its successors.
type serverChain struct {
	t     *testing.T
	addr  string
	stats string
	path  string
	pids  []int
	ready chan string // lines that begin with "listening"
	rest  chan []string
	errs  *lockedBuffer
}

// startChain starts the first one.
func startChain(t *testing.T, args ...string) *serverChain {
	t.Helper()
	dir := t.TempDir()
	d := &serverChain{
		t: t, stats: filepath.Join(dir, "stats"), path: filepath.Join(dir, "handover"),
		ready: make(chan string, 200), rest: make(chan []string, 1), errs: &lockedBuffer{},
	}
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	cmd := clitest.Command(t, append([]string{"serve", "--handover", d.path, "--stats", d.stats, "--linger", "20s"}, args...)...)
	cmd.Stdout, cmd.Stderr = outW, errW
	err := cmd.Start()
	_, _ = outW.Close(), errW.Close() // the children have them
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(d.errs, errR) }() // ends with the last process
	go d.read(outR)
	t.Cleanup(func() {
		if t.Failed() {
			for _, pid := range d.pids {
				_ = syscall.Kill(pid, syscall.SIGKILL) // most have ended
			}
		}
		_ = cmd.Wait() // its status has been seen in what it wrote
	})
	d.pids = append(d.pids, cmd.Process.Pid)
	d.addr = regexp.MustCompile(`v2:[0-9.]+:\d+/\d+`).FindString(d.listening())
	return d
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, w
}

// read sorts what the processes write, until the last of them has ended.
func (d *serverChain) read(r io.Reader) {
	var rest []string
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "listening") {
			d.ready <- lines.Text()
		} else {
			rest = append(rest, lines.Text())
		}
	}
	d.rest <- rest
}

func (d *serverChain) listening() string {
	d.t.Helper()
	select {
	case l := <-d.ready:
		return l
	case <-time.After(2 * time.Minute):
		d.t.Fatalf("process %d of %d is not ready: %s", len(d.pids), d.pids, d.errs)
		return ""
	}
}

// succeed has the present one hand over.
func (d *serverChain) handOver() {
	d.t.Helper()
	if err := syscall.Kill(d.pids[len(d.pids)-1], syscall.SIGUSR2); err != nil {
		d.t.Fatal(err)
	}
	if l := d.listening(); !strings.Contains(l, d.addr) {
		d.t.Fatalf("the successor says %s, the first was %s", l, d.addr)
	}
	d.pids = append(d.pids, d.pid())
	if n := len(d.pids); d.pids[n-1] == d.pids[n-2] {
		d.t.Fatal("the predecessor still answers for its successor")
	}
}

func (d *serverChain) pid() int {
	d.t.Helper()
	return d.snapshot().PID
}

// snapshot is what the present process says of itself.
func (d *serverChain) snapshot() *control.Snapshot {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := control.ReadStats(ctx, d.stats)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// end ends the last one, and checks that all have ended well.
func (d *serverChain) end() {
	d.t.Helper()
	if err := syscall.Kill(d.pids[len(d.pids)-1], syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case rest := <-d.rest:
		handed := slices.DeleteFunc(slices.Clone(rest), func(l string) bool { return !strings.HasPrefix(l, "handed over") })
		if len(rest) != len(d.pids) || len(handed) != len(d.pids)-1 || len(rest)-len(handed) != 1 {
			d.t.Errorf("%d processes said:\n%s", len(d.pids), strings.Join(rest, "\n"))
		}
	case <-time.After(2 * time.Minute):
		d.t.Fatalf("not all of %v have ended: %s", d.pids, d.errs)
	}
	// A load that has all its echoes ends, even while nobody takes its last ack. The session is
	// lossless: each process in turn dials, with its first attempt, whoever is not there any more.
	d.errs.mustHaveOnly(d.t, func(line string) bool {
		return strings.Contains(line, "attempt failed, dialling again") && strings.Contains(line, "connection refused") && !strings.Contains(line, d.addr)
	})
	for _, path := range []string{d.path, d.stats} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			d.t.Errorf("%s is left: %v", path, err)
		}
	}
}

// handOvers is how many follow each other.
func handOvers() int {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return 100
	}
	return 10
}

// untilDone runs send again and again until done is closed, and returns what it
// reported.
func untilDone(t *testing.T, done <-chan struct{}, args ...string) []sent {
	var all []sent
	for {
		r := ringmsgr(t, append([]string{"send", "--json"}, args...)...)
		if r.status != cli.OK {
			t.Errorf("send: %s %s", r.stdout, r.stderr)
			return all
		}
		all = append(all, decode[sent](t, r))
		select {
		case <-done:
			return all
		default:
		}
	}
}

// Matrix: IN-07
func TestSessionsPassToSuccessors(t *testing.T) {
	d := startChain(t, "--name", "osd.0", "--cores", "2", "--policy", "lossless-peer")
	done := make(chan struct{})
	var loads sync.WaitGroup
	var reports [2][]sent
	for i, args := range [][]string{
		{"--depth", "32", "--messages", "20000"},
		{"--depth", "8", "--messages", "2000", "--size", "100KiB", "--cores", "2"},
	} {
		loads.Go(func() {
			reports[i] = untilDone(t, done, append(args, "--peer", "osd", "--name", fmt.Sprint("osd.", 10+i),
				"--listen", "v2:127.0.0.1:0", "--policy", "lossless-peer", d.addr)...)
		})
	}
	for range handOvers() {
		d.handOver()
	}
	close(done)
	loads.Wait()
	var reconnects, messages uint64
	for _, list := range reports {
		for _, r := range list {
			if r.Lossy || r.Verified != r.Messages || r.Losses+r.Duplicates+r.Corrupt != 0 {
				t.Errorf("%+v", r)
			}
			reconnects += r.Reconnects
			messages += r.Messages
		}
	}
	if reconnects == 0 {
		t.Error("no session has seen a hand-over")
	}
	t.Logf("%d hand-overs, %d messages, %d reconnects", handOvers(), messages, reconnects)
	d.end()
}

// successor waits until somebody has begun to take over, from the first process: it is
// the same program, but hardly further than that. It is looked for among all
// processes, as its parent may be gone by the time.
func (d *serverChain) successor() int {
	d.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			d.t.Fatal(err)
		}
		for _, file := range all {
			args, _ := os.ReadFile(file) // it may have ended
			if !strings.Contains(string(args), "--take-over="+d.path) {
				continue
			}
			n, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				d.t.Fatal(err)
			}
			return n
		}
	}
	d.t.Fatalf("process %d has no successor: %s", d.pids[0], d.errs)
	return 0
}

// A successor that is told to have one of its own before it is ready, even
// before it has got as far as a handler, obeys when it can.
func TestASignalToASuccessorThatIsNotReadyIsObeyed(t *testing.T) {
	for range 3 {
		d := startChain(t, "--cores", "2")
		if err := syscall.Kill(d.pids[0], syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		early := d.successor()
		if err := syscall.Kill(early, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if l := d.listening(); !strings.Contains(l, d.addr) {
				t.Fatalf("a successor says %s, the first was %s", l, d.addr)
			}
		}
		d.pids = append(d.pids, early, d.pid())
		if d.pids[2] == early {
			t.Fatal("the second successor does not answer")
		}
		ringmsgr(t, "send", "--messages", "10", d.addr).want(t, cli.OK)
		d.end()
	}
}

func TestLossyClientsAreNotRefusedByAHandOver(t *testing.T) {
	d := startChain(t, "--cores", "2", "--linger", "1h") // 5000 messages may take longer than it does by default
	done := make(chan struct{})
	var loads sync.WaitGroup
	loads.Go(func() { untilDone(t, done, "--messages", "50", "--conns", "3", d.addr) })
	loads.Go(func() { untilDone(t, done, "--messages", "5000", "--depth", "4", d.addr) })
	for range handOvers() {
		d.handOver()
	}
	close(done)
	loads.Wait()
	d.end()
}

func TestSuccessorThatCannotStartLeavesServeAsItIs(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "handover")
	s := serve(t, "--name", "osd.1", "--handover", path, "--log-level", "off")
	r := ringmsgr(t, "serve", "--name", "osd.2", "--take-over", path, "--handover", path).want(t, cli.Failed)
	if !strings.Contains(r.stderr, "osd.2") {
		t.Errorf("stderr %q", r.stderr)
	}
	ringmsgr(t, "send", "--peer", "osd", "--messages", "10", s.addr).want(t, cli.OK)
	ringmsgr(t, "serve", "--take-over", filepath.Join(dir, "nobody")).want(t, cli.Failed)
	ringmsgr(t, "serve", "--linger", "-1s").want(t, cli.Usage)
	ringmsgr(t, "serve", "--name", "mon.a", "--auth", "cephx", "--key", "-", "--handover", path).want(t, cli.Usage)
}

func TestSuccessorArgs(t *testing.T) {
	for args, want := range map[string]string{
		"serve":                             "serve --take-over=p",
		"serve --take-over=a --cores 2":     "serve --cores 2 --take-over=p",
		"serve -take-over a --handover b c": "serve --handover b c --take-over=p",
		"serve take-over":                   "serve take-over --take-over=p",
	} {
		if got := strings.Join(successorArgs(strings.Fields(args), "p"), " "); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
