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
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
)

// results writes a file as the benchmark does, with two servers and three cells.
func results(t *testing.T) (path string) {
	t.Helper()
	f := report.File{Machine: report.Machine{CPU: "a test", Cores: 1, Kernel: "0", Go: "go"}, Servers: []report.Server{{Name: "ours"}, {Name: "theirs"}}}
	for i, size := range []int{64, 4096, 65536} {
		c := report.Cell{Load: report.Load{Size: size, Conns: 64, Depth: 1}}
		for j, s := range f.Servers {
			h := latency.New()
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
	p, err := json.Marshal(&f)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestThePicturesAreSVGAndNameTheServers(t *testing.T) {
	dir := t.TempDir()
	var errs bytes.Buffer
	if status := run([]string{"--dir", dir, results(t)}, io.Discard, &errs); status != cli.OK {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	for name, words := range map[string][]string{
		"cpu.svg":      {"CPU of the server for each message, 64x1", "64 B", "4 KiB", "64 KiB", "microseconds"},
		"syscalls.svg": {"System calls of the server for each message, 64x1", "64 KiB"},
		"latency.svg":  {"Latency, 4 KiB 64x1", "share of the requests"},
	} {
		p, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
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

func TestOnlyTheServersThatAreNamedAreDrawn(t *testing.T) {
	dir := t.TempDir()
	if status := run([]string{"--servers", "ours", "--dir", dir, results(t)}, io.Discard, io.Discard); status != cli.OK {
		t.Fatal(status)
	}
	if p, err := os.ReadFile(filepath.Join(dir, "cpu.svg")); err != nil || bytes.Contains(p, []byte("theirs")) {
		t.Errorf("%v, %s", err, p)
	}
}

func TestWhatCannotBeDrawnIsSaid(t *testing.T) {
	file := results(t)
	for args, want := range map[string]string{
		"":                             "want one file",
		"--load 1x1 " + file:           "no results",
		"--cell none " + file:          "latency.svg: the file has no results",
		"--servers others " + file:     "no results",
		"--dir /nonexistent/x " + file: "--dir /nonexistent/x",
		"/nonexistent":                 "no such file",
		"--size 1 " + file:             "no flag --size",
	} {
		var errs bytes.Buffer
		if status := run(append([]string{"--dir", t.TempDir()}, strings.Fields(args)...), io.Discard, &errs); status == cli.OK || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: status %d, %q; want %q", args, status, errs.String(), want)
		}
	}
}
