package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

// asProgram makes the test binary the benchmark itself, for children and for
// the tests that need it as a process.
const asProgram = "RINGMSGR_BENCH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// everyServer names all variants of this build, those too that are compared
// only when they are named.
func everyServer() string {
	var names []string
	for _, v := range variants() {
		names = append(names, v.name)
	}
	return strings.Join(names, ",")
}

// The benchmark itself, tiny, with every server that this build has.
// Matrix: BE-01
func TestTheBenchmarkRuns(t *testing.T) {
	t.Setenv(asProgram, "1")
	path := filepath.Join(t.TempDir(), "results.json")
	var stdout, stderr bytes.Buffer
	args := []string{"--rounds", "2", "--slice", "10ms", "--sizes", "64,64KiB", "--loads", "1x1,4x4", "--json", path, "--servers", everyServer()}
	if status := run(args, nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	f := readReport(t, path)
	if len(f.Servers) != len(variants()) || len(f.Cells) != 4 || f.Machine.Kernel == "" || f.Machine.Go == "" {
		t.Fatalf("%d servers, %d cells, %+v", len(f.Servers), len(f.Cells), f.Machine)
	}
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if len(r.Samples) != 2 || r.Latency == nil || r.Latency.Count() == 0 {
				t.Fatalf("%v %s: %d samples", c.Load, r.Server, len(r.Samples))
			}
			m := r.Median
			if m.MessagesPerS <= 0 || m.P50US <= 0 || m.P99US < m.P50US || m.ServerCPUUS <= 0 || m.ClientCPUUS <= 0 {
				t.Errorf("%v %s: %+v", c.Load, r.Server, m)
			}
			if (r.Ratio == nil) != (r.Server == f.Base) {
				t.Errorf("%v %s: ratio %+v", c.Load, r.Server, r.Ratio)
			}
			if r.Syscalls.How == "" || r.Server == "floor" && r.Syscalls.Median <= 0 {
				t.Errorf("%v %s: system calls %+v", c.Load, r.Server, r.Syscalls)
			}
		}
		// The order is reversed in the second round.
		first, last := c.Results[0].Samples, c.Results[len(c.Results)-1].Samples
		if first[0].Order != 1 || first[1].Order != len(c.Results) || last[0].Order != len(c.Results) || last[1].Order != 1 {
			t.Errorf("order %d %d, %d %d", first[0].Order, first[1].Order, last[0].Order, last[1].Order)
		}
	}
	if !strings.Contains(stderr.String(), "[4/4] 64 KiB 4x4") {
		t.Errorf("no progress shown:\n%s", stderr.String())
	}
	var again bytes.Buffer
	if status := run([]string{"--show", path}, nil, &again, io.Discard); status != exitOK || again.String() != stdout.String() {
		t.Errorf("--show prints something else, status %d", status)
	}
}

// Matrix: BE-01
func TestTheBenchmarkRunsInSecureMode(t *testing.T) {
	t.Setenv(asProgram, "1")
	path := filepath.Join(t.TempDir(), "results.json")
	var stdout, stderr bytes.Buffer
	args := []string{"--mode", "secure", "--rounds", "1", "--slice", "10ms", "--sizes", "64,64KiB", "--loads", "3x2", "--json", path, "--servers", everyServer()}
	if status := run(args, nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	f := readReport(t, path)
	if f.Mode != child.ModeSecure || len(f.Cells) != 2 || len(f.Codec) != 2*len(codecSizes()) {
		t.Fatalf("mode %q, %d cells, %d rows of the codec", f.Mode, len(f.Cells), len(f.Codec))
	}
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if r.Latency == nil || r.Latency.Count() == 0 || r.Median.MessagesPerS <= 0 {
				t.Errorf("%v %s: %+v", c.Load, r.Server, r.Median)
			}
		}
	}
	for _, c := range f.Codec {
		if c.Allocations != 0 || c.GBPerS <= 0 || c.CipherGBPerS <= 0 || c.Ratio.Rounds != len(c.Samples) || len(c.Samples) != codecRounds {
			t.Errorf("%+v", c)
		}
	}
	for _, want := range []string{", mode secure\n", "AES-128-GCM on one core", "4 MiB"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is missing:\n%s", want, stdout.String())
		}
	}
	var again bytes.Buffer
	if status := run([]string{"--show", path}, nil, &again, io.Discard); status != exitOK || again.String() != stdout.String() {
		t.Errorf("--show prints something else, status %d:\n%s", status, again.String())
	}
}

func TestTheCodecIsMeasuredAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	var stdout, again bytes.Buffer
	if status := run([]string{"--codec", "--rounds", "1", "--slice", "10ms", "--json", path}, nil, &stdout, io.Discard); status != exitOK {
		t.Fatalf("exit status %d\n%s", status, stdout.String())
	}
	if f := readReport(t, path); len(f.Codec) != 2*len(codecSizes()) || len(f.Servers) != 0 || len(f.Cells) != 0 {
		t.Errorf("%d rows, %d servers, %d cells", len(f.Codec), len(f.Servers), len(f.Cells))
	}
	if status := run([]string{"--show", path}, nil, &again, io.Discard); status != exitOK || again.String() != stdout.String() {
		t.Errorf("--show prints something else, status %d:\n%s", status, again.String())
	}
}

// readReport reads what --json has written.
func readReport(t *testing.T, path string) report.File {
	t.Helper()
	var f report.File
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheBenchmarkRunsWithGCLoad(t *testing.T) {
	t.Setenv(asProgram, "1")
	var stdout, stderr bytes.Buffer
	args := []string{"--gc-load", "--servers", "net", "--rounds", "1", "--slice", "50ms", "--sizes", "64", "--loads", "2x2"}
	if status := run(args, nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	if !strings.Contains(stdout.String(), "GC load in the server") {
		t.Error(stdout.String())
	}
}

func TestStreamsAreInTheWayOfTheLoadAndNotMeasured(t *testing.T) {
	t.Setenv(asProgram, "1")
	file := filepath.Join(t.TempDir(), "results.json")
	var stdout, stderr bytes.Buffer
	args := []string{"--beside", "2x256KiB", "--pace", "500", "--servers", "floor,epoll", "--base", "floor", "--rounds", "1", "--slice", "50ms", "--sizes", "64", "--loads", "1x1", "--json", file}
	if status := run(args, nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	for _, want := range []string{"500 requests/s, beside 2 connections that stream 256 KiB", "streams MB/s"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in\n%s", want, stdout.String())
		}
	}
	for _, r := range readReport(t, file).Cells[0].Results {
		if s := r.Samples[0]; s.BesideMBPerS == 0 || s.MBPerS > 1 || r.Syscalls.Known() {
			t.Errorf("%s: %+v, %+v", r.Server, s, r.Syscalls)
		}
	}
}

func TestEveryEndingOfTheBenchmarkEndsItsChildren(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			parent, children := startLong(t)
			defer parent.Process.Kill()
			if err := parent.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			err := parent.Wait()
			if sig != syscall.SIGKILL && parent.ProcessState.ExitCode() != exitFailed {
				t.Errorf("ended with %v", err)
			}
			for _, fd := range children {
				waitForEnd(t, fd)
			}
		})
	}
}

// Matrix: BE-03
func TestTheDeathOfAServerEndsTheBenchmarkWithAnError(t *testing.T) {
	parent, children := startLong(t)
	defer parent.Process.Kill()
	if err := unix.PidfdSendSignal(children[0], unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	if code := parent.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit status %d", code)
	}
	for _, fd := range children {
		waitForEnd(t, fd)
	}
}

// startLong starts the benchmark as a process and returns, once it measures,
// pidfds of all its children.
func startLong(t *testing.T) (*exec.Cmd, []int) {
	t.Helper()
	// The cell is announced when all children run.
	cmd, fds := startBench(t, "[1/1]", "--slice", "1m", "--sizes", "64", "--loads", "1x1", "--servers", "net,floor")
	if len(fds) != 3 {
		t.Fatalf("%d children, want two servers and the client", len(fds))
	}
	return cmd, fds
}

// startBench starts the benchmark as a process and returns, once it has
// announced something, pidfds of its children.
func startBench(t *testing.T, announced string, args ...string) (*exec.Cmd, []int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			fds = append(fds, fd)
		}
	}
	return cmd, fds
}

// waitForEnd waits until the process of a pidfd has ended.
func waitForEnd(t *testing.T, fd int) {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int((20 * time.Second).Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("a child is still there: %d, %v", n, err)
		}
		return
	}
}

func TestAnUnknownFlavourCannotBeBuilt(t *testing.T) {
	f := newFlavours(newProgress(io.Discard))
	defer f.remove()
	t.Setenv("PATH", t.TempDir())
	if _, err := f.build(context.Background(), "epoll"); err == nil || !strings.Contains(err.Error(), "go") {
		t.Fatalf("without a go command: %v", err)
	}
}
