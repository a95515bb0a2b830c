package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// benchmark runs the benchmark as a user does, which builds this module, and returns its
// results.
func benchmark(t *testing.T, args ...string) (f report.File) {
	t.Helper()
	dir := t.TempDir()
	program, results := filepath.Join(dir, "bench"), filepath.Join(dir, "results.json")
	library := filepath.Join("..", "..")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./bench")
	build.Dir = library
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	args = append(args, "--rounds", "2", "--slice", "10ms", "--json", results)
	run := exec.CommandContext(t.Context(), program, args...)
	run.Dir = library
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := os.ReadFile(results)
	clitest.Must(t, err)
	clitest.Must(t, json.Unmarshal(p, &f))
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if len(r.Samples) != 2 || r.Latency == nil || r.Latency.Count() == 0 ||
				r.Median.ServerCPUUS <= 0 || r.Median.ClientCPUUS <= 0 {
				t.Errorf("%v %s: %+v, %+v", c.Load, r.Server, r.Median, r.Syscalls)
			}
		}
	}
	return f
}

// Its servers are compared with another one.
// Matrix: BE-02
func TestTheBenchmarkComparesTheRivals(t *testing.T) {
	servers := "net"
	for _, r := range child.Rivals() {
		servers += "," + r.Name
	}
	f := benchmark(t, "--servers", servers, "--sizes", "64,64KiB", "--loads", "1x1,4x4")
	if len(f.Servers) != 1+len(child.Rivals()) || len(f.Cells) != 4 {
		t.Fatalf("%d servers, %d cells", len(f.Servers), len(f.Cells))
	}
	for _, s := range f.Servers[1:] {
		if len(s.Settings) == 0 || s.About == "" {
			t.Errorf("%+v", s)
		}
	}
}
