package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// Matrix: BE-04
func TestGrowthIsMeasured(t *testing.T) {
	t.Setenv(asProgram, "1")
	path := filepath.Join(t.TempDir(), "growth.json")
	opt, err := parseOptions([]string{
		"--growth", "--growth-conns", "1,5,120", "--growth-cores", "1,2", "--rounds", "2", "--slice", "10ms", "--servers", "floor,net,epoll", "--json", path,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	opt.growth.settle = 20 * time.Millisecond
	var out, progress bytes.Buffer
	if err := measureGrowth(t.Context(), opt, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	f := readReport(t, path)
	g := f.Growth
	if g.Empty() || g.Size != growthSize || len(f.Cells) != 0 || len(f.Servers) != 3 {
		t.Fatalf("%+v", f)
	}
	var loads []string
	for _, c := range g.Cells {
		loads = append(loads, fmt.Sprintf("%d of %d", c.Load.Active, c.Load.Conns))
		for _, r := range c.Results {
			if len(r.Samples) != 2 || r.Median.ServerCPUUS <= 0 || r.Median.MessagesPerS <= 0 || (r.Ratio == nil) != (r.Server == "epoll") {
				t.Errorf("%v %s: %+v", c.Load, r.Server, r.Median)
			}
		}
		// The order is reversed in the second round.
		if first := c.Results[0].Samples; first[0].Order != 1 || first[1].Order != len(c.Results) {
			t.Errorf("%v: places %d and %d", c.Load, first[0].Order, first[1].Order)
		}
	}
	if got := strings.Join(loads, ", "); got != "1 of 1, 1 of 5, 5 of 5, 1 of 120, 120 of 120" {
		t.Errorf("cells %s", got)
	}
	if len(g.Memory) != 1 || g.Memory[0].Conns != 120 || len(g.Memory[0].Results) != 3 || g.Memory[0].Results[1].Busy <= 0 {
		t.Errorf("memory %+v", g.Memory)
	}
	// The floor is one thread.
	if len(g.Cores) != 2 || g.Cores[1].Cores != 2 || len(g.Cores[1].Results) != 2 || g.Cores[1].Results[0].Ratio == nil || g.CoresLoad.Conns == 0 {
		t.Errorf("cores %+v", g.Cores)
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(line)) - 1; n > cli.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	var again bytes.Buffer
	if status := run([]string{"--show", path}, nil, &again, io.Discard); status != exitOK || again.String() != out.String() {
		t.Errorf("--show prints something else, status %d:\n%s", status, again.String())
	}
}

// A process with fewer descriptors than connections says so before it opens any.
// Matrix: BE-05
func TestTooFewDescriptorsAreSaidAtOnce(t *testing.T) {
	for args, want := range map[string]string{
		"--growth --growth-conns 10,300 --servers net": "--growth-conns",
		"--growth --growth-conns 10,300 --rivals":      "--growth-conns",
		"--idle 300 --servers net":                     "--idle",
	} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -n 350 && exec "$0" "$@"`, os.Args[0])
		cmd.Args = append(cmd.Args, strings.Fields(args)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", args, err, out)
		}
		if !strings.Contains(string(out), "300 connections take 400 in each process, and the hard limit is 350") {
			t.Errorf("%s: %s", args, out)
		}
	}
}

// Matrix: BE-06
func TestPicturesThatCannotBeDrawnEndARunBeforeItBegins(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no go command
	measured := false
	opt := options{plot: t.TempDir()}
	err := withPictures(context.Background(), &opt, io.Discard, func() error { measured = true; return nil })
	if err == nil || !strings.Contains(err.Error(), "--plot") || measured {
		t.Errorf("measured %v, error %v", measured, err)
	}
}

// Matrix: BE-02
func TestARivalThatCannotBeBuiltIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no go command
	t.Setenv(asProgram, "1")
	var errs bytes.Buffer
	if status := run([]string{"--servers", "net,grpc"}, nil, io.Discard, &errs); status != exitFailed || !strings.Contains(errs.String(), "server grpc: ") {
		t.Errorf("status %d, %s", status, errs.String())
	}
}
