package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// grown is a file with the growth of n servers, the last of which is the base.
func grown(n int) *File {
	g := &Growth{Size: 4096, CoresLoad: Load{Size: 4096, Conns: 64, Depth: 16}}
	f := &File{Growth: g}
	samples := func(cpu float64) (all []Sample) {
		for round := 1; round <= 7; round++ {
			all = append(all, Sample{Round: round, ServerCPUUS: cpu * float64(10+round), MessagesPerS: 123456 / cpu, P99US: 1234})
		}
		return all
	}
	for i := range n {
		f.Servers = append(f.Servers, Server{Name: fmt.Sprintf("a-server-%d", i), About: "of a test"})
	}
	f.Base = f.Servers[n-1].Name
	results := func(times float64) (all []Result) {
		for i, s := range f.Servers {
			all = append(all, Result{Server: s.Name, Samples: samples(times * float64(i+1))})
		}
		return all
	}
	for _, l := range []struct{ conns, active int }{{1, 1}, {10000, 100}, {10000, 10000}} {
		c := Cell{Load: Load{Size: 4096, Conns: l.conns, Active: l.active, Depth: 1}, Results: results(1)}
		c.Compute(f.Base)
		g.Cells = append(g.Cells, c)
	}
	m := GrowthMemory{Conns: 10000}
	for i, s := range f.Servers {
		m.Results = append(m.Results, MemoryResult{Server: s.Name, Idle: int64(i)*1024 - 2048, Busy: 123456})
	}
	g.Memory = append(g.Memory, m)
	for _, cores := range []int{1, 2, 4} {
		g.Cores = append(g.Cores, GrowthCores{Cores: cores, Results: results(float64(cores))})
	}
	g.Compute()
	return f
}

// Matrix: BE-06
func TestGrowthFitsItsColumns(t *testing.T) {
	for _, n := range []int{1, 4, 9} {
		f := grown(n)
		var b bytes.Buffer
		if err := f.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(line)) - 1; n > DefaultWidth {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		for _, want := range []string{
			"CPU of the server per message, 4 KiB, one open on each active connection (medians of 7 rounds)",
			"Messages/s, 4 KiB", "connections active", "  10000         100", "  10000       10000", "a-server-0 idle", "-2 KiB", "121 KiB",
			"Cores, 4 KiB, 64 connections, depth 16", "server CPU : 1", "4.00 (4.00..4.00)",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%d servers: no %q in\n%s", n, want, b.String())
			}
		}
	}
}

// Connections are compared with the base, cores with the first.
// Matrix: BE-04
func TestGrowthIsComparedRoundByRound(t *testing.T) {
	g := grown(4).Growth
	for _, c := range g.Cells {
		for i, r := range c.Results {
			if i == 3 {
				if r.Ratio != nil {
					t.Errorf("the base has ratios")
				}
				continue
			}
			if want := float64(i+1) / 4; math.Abs(r.Ratio.ServerCPU.Median-want) > 1e-9 || r.Ratio.ServerCPU.Rounds != 7 {
				t.Errorf("%v %s: %+v, want %v", c.Load, r.Server, r.Ratio.ServerCPU, want)
			}
		}
	}
	for i, c := range g.Cores {
		for _, r := range c.Results {
			if i == 0 {
				if r.Ratio != nil || r.Median.ServerCPUUS == 0 {
					t.Errorf("one core: %+v, %+v", r.Median, r.Ratio)
				}
				continue
			}
			if want := float64(c.Cores); math.Abs(r.Ratio.ServerCPU.Median-want) > 1e-9 || math.Abs(r.Ratio.Rate.Median-1/want) > 1e-9 {
				t.Errorf("%d cores: %+v", c.Cores, r.Ratio)
			}
		}
	}
}

// Matrix: BE-06
func TestGrowthKeepsItsFormAsJSON(t *testing.T) {
	f := grown(3)
	p, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got File
	if err := json.Unmarshal(p, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Growth, f.Growth) {
		t.Errorf("another growth came back: %s", p)
	}
}

func TestWhatDidNotGrowIsNotPrinted(t *testing.T) {
	for _, g := range []*Growth{nil, {}} {
		var b bytes.Buffer
		f := File{Growth: g}
		if f.writeGrowth(&b); b.Len() > 0 || !g.Empty() {
			t.Errorf("%+v: %s", g, b.String())
		}
	}
}

func TestALoadSaysHowManyConnectionsAreActive(t *testing.T) {
	for want, l := range map[string]Load{
		"64 B 100x1":          {Size: 64, Conns: 100, Depth: 1, Active: 100},
		"64 B 100x1 1 active": {Size: 64, Conns: 100, Depth: 1, Active: 1},
		"64 B 100x2":          {Size: 64, Conns: 100, Depth: 2},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
