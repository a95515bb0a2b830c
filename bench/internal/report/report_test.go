package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// canned is a run with one server that wins, one that loses, one that varies,
// and cells with every peculiarity of the table.
func canned() *File {
	f := &File{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Machine: Machine{CPU: "Some CPU", Cores: 2, Kernel: "6.18.0", Go: "go1.26.8", Commit: "0123456789abcdef0123", Modified: true},
		Command: []string{"--rounds", "5"},
		Base:    "epoll",
		Servers: []Server{
			{Name: "floor", About: "bare echo"}, {Name: "epoll", About: "one"}, {Name: "io_uring", About: "another"}, {Name: "net", About: "plain"},
		},
		Notes: []string{strings.Repeat("something was not possible, ", 5) + "that is all"},
	}
	loads := []Load{
		{Size: 64, Conns: 1, Depth: 1}, {Size: 4096, Conns: 64, Depth: 1}, {Size: 1 << 20, Conns: 16, Depth: 16, GCLoad: true},
	}
	factors := map[string][5]float64{
		"floor": {1.5, 1.6, 1.4, 1.55, 1.45}, "epoll": {1, 1, 1, 1, 1}, "io_uring": {1.05, 0.97, 1.01, 1.1, 0.9}, "net": {0.8, 0.7, 0.75, 0.9, 0.6},
	}
	for i, l := range loads {
		c := Cell{Load: l}
		for _, s := range f.Servers {
			r := Result{Server: s.Name}
			for round, x := range factors[s.Name] {
				noise := 1 + float64(round%3)/10 // hits all servers of a round alike
				r.Samples = append(r.Samples, Sample{
					Round: round + 1, Messages: 300000, Replies: []uint64{300000, 500, 50}[i], WindowS: 0.3,
					MessagesPerS: 1e6 / float64(1+i*1000) * x * noise, MBPerS: 64 * x * noise,
					P50US: 10 / x / noise, P99US: 2000 / x / noise, P999US: 3e6 / x / noise,
					ServerCPUUS: 4 / x, ClientCPUUS: 123.4, UnsteadyStart: l.GCLoad && s.Name == "net",
				})
			}
			if s.Name != "net" {
				r.Syscalls.PerMessage = []float64{2 / factors[s.Name][0], 2.5}
			}
			c.Results = append(c.Results, r)
		}
		f.Cells = append(f.Cells, c)
	}
	f.Cells[2].Results[0].Samples = nil
	for i := range f.Cells {
		f.Cells[i].Compute(f.Base)
	}
	return f
}

// Matrix: BE-06
func TestTable(t *testing.T) {
	var got bytes.Buffer
	clitest.Must(t, canned().WriteTable(&got))
	path := filepath.Join("testdata", "table.golden")
	if *update {
		clitest.Must(t, os.WriteFile(path, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	clitest.Must(t, err)
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the table differs from %s (rewrite with -update):\n%s", path, got.String())
	}
	for line := range strings.Lines(got.String()) {
		if len(line) > cli.Width+1 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

func TestJSONKeepsTheWholeReport(t *testing.T) {
	f := canned()
	p, err := json.Marshal(f)
	clitest.Must(t, err)
	var back File
	clitest.Must(t, json.Unmarshal(p, &back))
	if !reflect.DeepEqual(f, &back) {
		t.Error("the report changed")
	}
}

func TestAnEmptyReportHasATable(t *testing.T) {
	var b strings.Builder
	f := &File{Base: "net", Servers: []Server{{Name: "net"}, {Name: "floor"}}}
	if err := f.WriteTable(&b); err != nil || !strings.Contains(b.String(), "of 0 cells") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Rounds that are missing from one server, or stand in another order, are not paired with
// those that stand at the same place. A round without a figure of the base has no ratio.
// Matrix: BE-07
func TestACellPairsItsServersByRound(t *testing.T) {
	at := func(round int, x float64) Sample {
		return Sample{Round: round, MessagesPerS: x, P50US: x, P99US: x, ServerCPUUS: x}
	}
	c := Cell{Results: []Result{
		{Server: "base", Samples: []Sample{at(3, 10), at(1, 40), at(4, 0), at(2, 20), at(5, 20)}},
		{Server: "ours", Samples: []Sample{at(1, 40), at(3, 20), at(4, 7), at(5, 30), at(9, 1)}},
	}}
	c.Compute("base")
	want := Ratio{Median: 1.5, Min: 1, Max: 2, Rounds: 3, Spread: 1. / 3}
	got := *c.Results[1].Ratio
	for name, r := range map[string]Ratio{"messages/s": got.Rate, "p50": got.P50, "p99": got.P99, "CPU": got.CPU} {
		if r != want {
			t.Errorf("%s: %+v, want %+v", name, r, want)
		}
	}
	if c.Results[0].Ratio != nil {
		t.Error("the base has a ratio")
	}
}

// In a short slice on a busy machine a server may use no CPU time that its clock shows: the figures
// are kept nevertheless.
// Matrix: BE-06
func TestAFigureOfZeroIsWritten(t *testing.T) {
	none := []Sample{{Round: 1, MessagesPerS: 5, P50US: 1, P99US: 1}}
	some := []Sample{{Round: 1, MessagesPerS: 5, P50US: 1, P99US: 1, ServerCPUUS: 3}}
	for _, samples := range [][2][]Sample{{none, some}, {some, none}, {none, none}} {
		c := Cell{Results: []Result{{Server: "base", Samples: samples[0]}, {Server: "ours", Samples: samples[1]}}}
		c.Compute("base")
		if _, err := json.Marshal(&c); err != nil {
			t.Errorf("%v: %+v", err, c.Results[1].Ratio)
		}
	}
}

func TestNamesReadWell(t *testing.T) {
	for want, got := range map[string]string{
		"64 B 1x1 gc":              Load{Size: 64, Conns: 1, Depth: 1, GCLoad: true}.String(),
		"64 B 9x1 2 active":        Load{Size: 64, Conns: 9, Depth: 1, Active: 2}.String(),
		"read, direct 4 KiB 2x100": Load{What: "read, direct", Size: 4096, Conns: 2, Depth: 100}.String(),
		"1.50 (1 round)":           Ratio{Median: 1.5, Min: 1.5, Max: 1.5, Rounds: 1}.String(),
		"1.50 (1.40..1.60)":        Ratio{Median: 1.5, Min: 1.4, Max: 1.6, Rounds: 2}.String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Matrix: BE-07
func TestVerdictsNeedAgreementAndADifference(t *testing.T) {
	for _, c := range []struct {
		r    Ratio
		want verdict
	}{
		{Ratio{Median: 1.13, Min: 1.01, Max: 1.25, Rounds: EnoughRounds}, better},
		{Ratio{Median: 1.1, Min: 1.01, Max: 1.25, Rounds: 7}, same},  // no more than a machine differs
		{Ratio{Median: 1.13, Min: 0.99, Max: 1.25, Rounds: 7}, same}, // a round disagrees
		{Ratio{Median: 0.87, Min: 0.75, Max: 0.99, Rounds: 5}, worse},
		{Ratio{Median: 0.91, Min: 0.75, Max: 0.99, Rounds: 5}, same},
		{Ratio{Median: 0.87, Min: 0.75, Max: 1.001, Rounds: 5}, same},
		{Ratio{Median: 2, Min: 1.9, Max: 2.1, Rounds: EnoughRounds - 1}, unjudged},
		{Ratio{}, unjudged},
	} {
		if got := c.r.verdict(true); got != c.want {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
		mirrored := map[verdict]verdict{better: worse, worse: better, same: same, unjudged: unjudged}[c.want]
		if got := c.r.verdict(false); got != mirrored {
			t.Errorf("%+v, less is better: %v, want %v", c.r, got, mirrored)
		}
	}
}
