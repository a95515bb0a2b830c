package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// measured are results as the benchmark has them, of two servers and three cells.
func measured() *report.File {
	f := &report.File{
		Machine: report.Machine{CPU: "a test", Cores: 1, Kernel: "0", Go: "go"},
		Servers: []report.Server{{Name: "ours"}, {Name: "theirs"}},
	}
	for i, size := range []int{64, 4096, 65536} {
		c := report.Cell{Load: report.Load{Size: size, Conns: 64, Depth: 1}}
		for j, s := range f.Servers {
			h := cli.NewHistogram()
			for n := range 1000 {
				h.Record(time.Duration(n*(j+1)) * time.Microsecond)
			}
			c.Results = append(c.Results, report.Result{
				Server: s.Name, Median: report.Sample{ServerCPUUS: float64(1 + i + j)}, Latency: h,
				Syscalls: report.Syscalls{PerMessage: []float64{1}, Median: 0.5 + float64(j)},
			})
		}
		f.Cells = append(f.Cells, c)
	}
	return f
}

func written(t *testing.T, f *report.File) (path string) {
	t.Helper()
	p, err := json.Marshal(f)
	clitest.Must(t, err)
	path = filepath.Join(t.TempDir(), "results.json")
	clitest.Must(t, os.WriteFile(path, p, 0o600))
	return path
}

func TestThePicturesAreSVGAndNameTheServers(t *testing.T) {
	dir := t.TempDir()
	var errs bytes.Buffer
	if status := run([]string{"--dir", dir, written(t, measured())}, io.Discard, &errs); status != cli.OK {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	picturesSay(t, dir, map[string][]string{
		"cpu.svg":      {"CPU of the server for each message, 64x1", "64 B", "4 KiB", "64 KiB", "microseconds"},
		"syscalls.svg": {"System calls of the server for each message, 64x1", "64 KiB"},
		"latency.svg":  {"Latency, 4 KiB 64x1", "share of the requests"},
	})
}

// picturesSay looks into the pictures of a directory.
func picturesSay(t *testing.T, dir string, said map[string][]string) {
	t.Helper()
	for name, words := range said {
		p, err := os.ReadFile(filepath.Join(dir, name))
		clitest.Must(t, err)
		for d := xml.NewDecoder(bytes.NewReader(p)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, want := range append(words, "ours", "theirs", "a test, 1 cores") {
			if !strings.Contains(string(p), want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
	}
}

// A run without the usual load, or the usual size, is drawn too, one that was paced beside a
// loaded collector, and one whose system calls nobody could count.
// Matrix: BE-06
func TestWhatAnyRunHasIsDrawn(t *testing.T) {
	f := measured()
	for i := range f.Cells {
		l := &f.Cells[i].Load
		l.Conns, l.Depth, l.Active, l.GCLoad, l.Rate = 3, 2, i, true, 100
		for j := range f.Cells[i].Results {
			f.Cells[i].Results[j].Syscalls = report.Syscalls{}
		}
	}
	f.Cells = f.Cells[2:]
	dir := t.TempDir()
	var out bytes.Buffer
	status := run([]string{"--dir", dir, written(t, f)}, &out, io.Discard)
	if status != cli.OK || !strings.Contains(out.String(), "syscalls.svg is not drawn") {
		t.Fatalf("status %d, %s", status, out.String())
	}
	picturesSay(t, dir, map[string][]string{"cpu.svg": {"3x2:2"}, "latency.svg": {"Latency, 64 KiB 3x2 2 active 100/s gc"}})
	f.Cells = nil
	if status := run([]string{"--dir", dir, written(t, f)}, io.Discard, io.Discard); status != cli.Failed {
		t.Errorf("nothing to draw: status %d", status)
	}
}

// The benchmark, as a user runs it, builds this program and draws.
// Matrix: BE-06
func TestTheBenchmarkDraws(t *testing.T) {
	dir := t.TempDir()
	program, library := filepath.Join(dir, "bench"), filepath.Join("..", "..")
	clitest.Run(t, library, "go", "build", "-o", program, "./bench")
	pictures := filepath.Join(dir, "pictures")
	clitest.Run(t, library, program, "--show", written(t, measured()), "--plot", pictures)
	all := map[string][]string{"cpu.svg": nil, "latency.svg": nil, "syscalls.svg": nil}
	picturesSay(t, pictures, all)
}

func TestWhatCannotBeDrawnIsSaid(t *testing.T) {
	file := written(t, measured())
	for args, want := range map[string]string{
		"":                             "usage: plot FILE.json",
		"--dir /nonexistent/x " + file: "--dir /nonexistent/x",
		"/nonexistent":                 "no such file",
		"--size 1 " + file:             "no flag --size",
	} {
		var errs bytes.Buffer
		status := run(append([]string{"--dir", t.TempDir()}, strings.Fields(args)...), io.Discard, &errs)
		if status == cli.OK || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: status %d, %q; want %q", args, status, errs.String(), want)
		}
	}
}
