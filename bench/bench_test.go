package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/original"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

func TestMain(m *testing.M) { clitest.Program(m, main) }

// The benchmark itself, tiny, with every server that this build has.
// Matrix: BE-01
func TestTheBenchmarkRuns(t *testing.T) {
	for _, run := range []struct {
		mode, load string
		rounds     int
	}{{child.ModeCRC, "4x4", 2}, {child.ModeSecure, "3x2", 1}} {
		f, out := benchmark(t, "--mode", run.mode, "--rounds", strconv.Itoa(run.rounds), "--slice", "10ms",
			"--sizes", "64,64KiB", "--loads", run.load, "--servers", names(variants()))
		if len(f.Servers) != len(variants()) || len(f.Cells) != 2 || f.Machine.Kernel == "" || f.Machine.Go == "" {
			t.Fatalf("%d servers, %d cells, %+v", len(f.Servers), len(f.Cells), f.Machine)
		}
		for _, c := range f.Cells {
			checkCell(t, &f, &c, run.rounds)
		}
		secure := run.mode == child.ModeSecure
		if !strings.Contains(out, "[2/2] 64 KiB "+run.load) || strings.Contains(out, ", mode secure\n") != secure || (f.Mode == child.ModeSecure) != secure {
			t.Errorf("mode %q, and no progress shown:\n%s", f.Mode, out)
		}
	}
}

func checkCell(t *testing.T, f *report.File, c *report.Cell, rounds int) {
	t.Helper()
	for _, r := range c.Results {
		if len(r.Samples) != rounds || r.Latency == nil || r.Latency.Count() == 0 {
			t.Fatalf("%v %s: %d samples", c.Load, r.Server, len(r.Samples))
		}
		m := r.Median
		if m.MessagesPerS <= 0 || m.P50US <= 0 || m.P99US < m.P50US || m.ServerCPUUS <= 0 || m.ClientCPUUS <= 0 {
			t.Errorf("%v %s: %+v", c.Load, r.Server, m)
		}
		if (r.Ratio == nil) != (r.Server == f.Base) {
			t.Errorf("%v %s: ratio %+v", c.Load, r.Server, r.Ratio)
		}
		if r.Server == "floor" && r.Syscalls.Median <= 0 {
			t.Errorf("%v %s: system calls %+v", c.Load, r.Server, r.Syscalls)
		}
	}
	// The order is reversed in the second round.
	for round := range rounds {
		first, last := c.Results[0].Samples[round].Order, c.Results[len(c.Results)-1].Samples[round].Order
		if first+last != 1+len(c.Results) || (first == 1) != (round == 0) {
			t.Errorf("order %d and %d in round %d", first, last, round)
		}
	}
}

// A short run of every server on a small file. The client checks every answer, and reads
// back what was acknowledged, so that a server that does not do its work fails the run.
// Matrix: BE-08
func TestEveryStorageServerIsMeasured(t *testing.T) {
	dir := t.TempDir()
	f, out := benchmark(t, "--storage", "--storage-size", "4MiB", "--storage-dir", dir, "--sizes", "4KiB", "--loads", "16x16", "--rounds", "1", "--slice", "5ms")
	seen := map[string]int{}
	for _, c := range f.Cells {
		seen[c.Load.What]++
		if len(c.Results) != len(storageVariants()) {
			t.Errorf("%v: %d servers", c.Load, len(c.Results))
		}
		for _, r := range c.Results {
			if len(r.Samples) != 1 || r.Median.MessagesPerS <= 0 || r.Median.P99US < r.Median.P50US {
				t.Errorf("%v %s: %+v", c.Load, r.Server, r)
			}
		}
	}
	direct := !strings.Contains(out, "nothing is measured with direct I/O")
	for _, what := range storageWhats {
		if want := strings.HasSuffix(what, "direct"); seen[what] != 1 && (direct || !want) {
			t.Errorf("%s: %d cells", what, seen[what])
		}
	}
	for line := range strings.Lines(strings.ReplaceAll(out, dir, "DIR")) {
		if n := len([]rune(line)) - 1; n > cli.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Few connections of many are active in some cells, the memory of each is known, and a
// server on two cores is compared with the same on one.
// Matrix: BE-04
func TestGrowthIsMeasuredInCellsAsAllElse(t *testing.T) {
	f, out := benchmark(t, "--growth", "--rounds", "1", "--slice", "5ms", "--loads", "2x1,100x1:5", "--servers", "epoll,epoll@2,net", "--base", "epoll")
	if len(f.Cells) != 2 || len(f.Servers) != 3 || !strings.Contains(out, "5 active") || !strings.Contains(out, "idle conn") {
		t.Fatalf("%d cells of %d servers\n%s", len(f.Cells), len(f.Servers), out)
	}
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if (r.BytesPerConn != 0) != (c.Load.Conns == 100) || r.Median.MessagesPerS <= 0 {
				t.Errorf("%v %s: %d bytes, %+v", c.Load, r.Server, r.BytesPerConn, r.Median)
			}
		}
	}
}

// Matrix: RL-01, BE-04
func TestMemoryOfAConnectionIsOverItsServerBeforeTheFirstOne(t *testing.T) {
	cell := &report.Cell{Load: report.Load{Conns: 100}, Results: make([]report.Result, 2)}
	weigh(cell, []int64{10 << 20, 30 << 20}, []int64{10<<20 + 500_000, 30<<20 + 1_200_000})
	if a, b := cell.Results[0].BytesPerConn, cell.Results[1].BytesPerConn; a != 5000 || b != 12000 {
		t.Errorf("%d and %d bytes", a, b)
	}
}

// Matrix: BE-05
func TestTooFewDescriptorsAreSaidAtOnce(t *testing.T) {
	var limit unix.Rlimit
	clitest.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if err := enoughDescriptors(int(limit.Max)); !errors.Is(err, errDescriptors) || !strings.Contains(err.Error(), "ulimit -Hn") {
		t.Errorf("error %v", err)
	}
	if err := enoughDescriptors(1); err != nil {
		t.Error(err)
	}
}

// benchmark runs the program and returns its results and its output. --show prints the same.
func benchmark(t *testing.T, args ...string) (f report.File, output string) {
	t.Helper()
	clitest.AsProgram(t)
	path := filepath.Join(t.TempDir(), "results.json")
	var stdout, stderr, again bytes.Buffer
	if status := run(t.Context(), append(args, "--json", path), &stdout, &stderr); status != cli.OK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	if status := run(t.Context(), []string{"--show", path}, &again, io.Discard); status != cli.OK || again.String() != stdout.String() {
		t.Errorf("--show prints something else, status %d:\n%s", status, again.String())
	}
	p, err := os.ReadFile(path)
	clitest.Must(t, err)
	clitest.Must(t, json.Unmarshal(p, &f))
	return f, stdout.String() + stderr.String()
}

func TestTheBenchmarkRunsWithGCLoadAndAtARate(t *testing.T) {
	_, out := benchmark(t, "--gc-load", "--pace", "500", "--servers", "net", "--rounds", "1", "--slice", "50ms", "--sizes", "64", "--loads", "2x2")
	if !strings.Contains(out, "64 B 2x2 500/s gc") {
		t.Error(out)
	}
}

// The death of a server is an end, too.
// Matrix: BE-03
func TestEveryEndingOfTheBenchmarkEndsItsChildren(t *testing.T) {
	for _, c := range []struct {
		sig    syscall.Signal
		server bool // gets it, and not the benchmark
	}{{syscall.SIGKILL, false}, {syscall.SIGINT, false}, {syscall.SIGTERM, false}, {syscall.SIGKILL, true}, {syscall.SIGTERM, true}} {
		t.Run(fmt.Sprintf("%v, server %t", unix.SignalName(c.sig), c.server), func(t *testing.T) {
			parent, children := startLong(t)
			defer parent.Process.Kill()
			if c.server {
				clitest.Must(t, unix.PidfdSendSignal(children[0], c.sig, nil, 0))
			} else {
				clitest.Must(t, parent.Process.Signal(c.sig))
			}
			err := parent.Wait()
			if killed := c.sig == syscall.SIGKILL && !c.server; !killed && parent.ProcessState.ExitCode() != cli.Failed {
				t.Errorf("ended with %v", err)
			}
			for _, fd := range children {
				clitest.AwaitEnd(t, fd)
			}
		})
	}
}

// startLong starts the benchmark as a process and returns, once it measures, pidfds of all its children:
// the cell is announced when they run.
func startLong(t *testing.T) (*exec.Cmd, []int) {
	t.Helper()
	const announced = "[1/1]"
	cmd := clitest.Command(t, "--slice", "1m", "--sizes", "64", "--loads", "1x1", "--servers", "net,floor")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	clitest.Must(t, err)
	clitest.Must(t, cmd.Start())
	seen := ""
	buf := make([]byte, 4096)
	for !strings.Contains(seen, announced) {
		n, err := stderr.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buf[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	clitest.Must(t, err)
	var fds []int
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			clitest.Must(t, err)
			fd, err := unix.PidfdOpen(pid, 0)
			clitest.Must(t, err)
			t.Cleanup(func() { unix.Close(fd) })
			fds = append(fds, fd)
		}
	}
	if len(fds) != 3 {
		t.Fatalf("%d children, want two servers and the client", len(fds))
	}
	return cmd, fds
}

// Before a run begins.
// Matrix: BE-02, BE-06
func TestAProgramThatIsMissingIsNamed(t *testing.T) {
	clitest.AsProgram(t)
	t.Setenv("PATH", t.TempDir())
	for args, c := range map[string]struct {
		status int
		says   []string
	}{
		"--servers net,grpc":    {cli.Failed, []string{"server grpc: ", `"go"`}},
		"--plot " + t.TempDir(): {cli.Failed, []string{"--plot: ", `"go"`}},
		"--original":            {cli.Usage, []string{"--original: ", "ceph_perf_msgr_server"}},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), strings.Fields(args), &stdout, &stderr)
		for _, says := range c.says {
			if status != c.status || !strings.Contains(stderr.String(), says) || stdout.Len() > 0 {
				t.Errorf("%s: status %d, %s", args, status, stderr.String())
			}
		}
	}
}

// With the programs of Ceph, if they are here, both sides are compared.
func TestTheOriginalIsMeasured(t *testing.T) {
	releases, err := original.Find(os.Getenv("PATH"))
	if err != nil {
		t.Skip(err)
	}
	servers := releases[0].Version + ",epoll"
	f, out := benchmark(t, "--original", "--servers", servers, "--rounds", "1", "--slice", "500ms", "--sizes", "64", "--loads", "4x16")
	if len(f.Cells) != len(originalWhats) || len(f.Servers) != 2 {
		t.Fatalf("%d cells of %d servers\n%s", len(f.Cells), len(f.Servers), out)
	}
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if r.Median.MessagesPerS <= 0 || c.Load.CPU(r.Median) <= 0 {
				t.Errorf("%v %s: %+v", c.Load, r.Server, r.Median)
			}
		}
	}
}
