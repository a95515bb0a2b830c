package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bpf"
)

// canSteer says whether the steered half can be measured; it must be if
// CI=true.
func canSteer(t *testing.T) bool {
	t.Helper()
	_, err := bpf.Probe()
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("CI must be able to load programs: %v", err)
	}
	return err == nil
}

func TestAStormIsMeasuredUnsteeredAndWithTheHint(t *testing.T) {
	t.Setenv(asProgram, "1")
	const sessions = 24
	path := filepath.Join(t.TempDir(), "storm.json")
	var stdout, stderr bytes.Buffer
	args := []string{"--storm", "24", "--storm-cores", "3", "--rounds", "2", "--slice", "200ms", "--json", path}
	if status := run(args, nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f report.File
	if err := json.Unmarshal(p, &f); err != nil {
		t.Fatal(err)
	}
	want := 2
	if !canSteer(t) {
		want = 1
		if len(f.Notes) != 1 || !strings.Contains(f.Notes[0], "left out") {
			t.Errorf("notes %q", f.Notes)
		}
	}
	if f.Storm == nil || f.Storm.Sessions != sessions || f.Storm.Cores != 3 || len(f.Storm.Results) != want {
		t.Fatalf("%+v", f.Storm)
	}
	for _, r := range f.Storm.Results {
		if len(r.Samples) != 2 || (r.Ratio == nil) != (r.Steer == "none") {
			t.Errorf("%+v", r)
		}
		for _, s := range r.Samples {
			// How much comes within the window is the machine's business.
			if s.BackMS <= 0 || s.MedianBackMS > s.BackMS || s.P99US < s.P50US || s.ServerCPUMS <= 0 {
				t.Errorf("%s: %+v", r.Steer, s)
			}
			switch r.Steer {
			case "none":
				// The hash leaves one in three where it is.
				if s.Moved == 0 || s.Hinted != 0 {
					t.Errorf("unsteered: %+v", s)
				}
			case "hint":
				if s.Moved != 0 || s.Hinted < sessions {
					t.Errorf("with the hint: %+v", s)
				}
			}
		}
	}
	if want == 2 && (f.Storm.Results[0].Samples[0].Order != 1 || f.Storm.Results[0].Samples[1].Order != 2) {
		t.Error("the order is not reversed in the second round")
	}
	var again bytes.Buffer
	if status := run([]string{"--show", path}, nil, &again, io.Discard); status != exitOK || again.String() != stdout.String() {
		t.Errorf("--show prints something else, status %d\n%s\n%s", status, again.String(), stdout.String())
	}
}

// The privilege is one of a process: the benchmark runs in one that cannot get
// it.
func TestAStormSaysWhatItLacks(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--storm", "2", "--storm-cores", "2", "--rounds", "1", "--slice", "1ms")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for _, c := range []uintptr{unix.CAP_BPF, unix.CAP_SYS_ADMIN} {
			// Who may not drop it does not have it.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
				ended <- err
				return
			}
		}
		ended <- cmd.Run()
	}()
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	for what, text := range map[string]string{"progress": stderr.String(), "report": stdout.String()} {
		if !strings.Contains(text, "steered by hint are left out: CAP_BPF is missing") {
			t.Errorf("the %s does not say what is missing: %s", what, text)
		}
	}
}

func TestTheEndOfAStormEndsItsChildren(t *testing.T) {
	parent, children := startBench(t, "storm 1 of", "--storm", "8", "--storm-cores", "2", "--slice", "1m")
	defer parent.Process.Kill()
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	if len(children) < 2 {
		t.Errorf("%d children", len(children))
	}
	for _, fd := range children {
		waitForEnd(t, fd)
	}
}

func TestAStormHasBounds(t *testing.T) {
	for _, args := range []string{"--storm -1", "--storm 5000", "--storm 10 --storm-cores 1", "--storm 10 --storm-cores 65"} {
		if _, err := parseOptions(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
	o, err := parseOptions([]string{"--storm", "10"}, io.Discard)
	if err != nil || o.slice != stormWindow || o.cores != stormCores || o.rounds != defaultRounds {
		t.Errorf("%+v, %v", o, err)
	}
}
