package soak

import (
	"bytes"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/perf"
)

// row are the figures of one window: of the server, and of all sessions.
type row struct {
	at       time.Duration
	server   serverSample
	echoes   uint64 // since the beginning
	kept     int64  // reads and writes of files that succeeded, the same
	p50, p99 time.Duration
	storms   int64
	acts     int64
}

// row looks at everything.
func (w *world) row(began time.Time) {
	s, err := w.server.ask(w.t.Context(), serverRequest{})
	if err != nil {
		w.t.Error(err)
		return
	}
	took := perf.NewHistogram()
	r := row{at: time.Since(began), server: s, storms: w.storms.Load(), acts: w.acts.Load()}
	for _, s := range w.sessions {
		n, _ := s.window(took) // judged in the end
		r.echoes += n
	}
	for _, k := range w.keepers {
		for p := range places {
			r.kept += k.reads[p].Load() + k.writes[p].Load()
		}
	}
	r.p50, r.p99 = took.Quantile(0.5), took.Quantile(0.99)
	w.rows = append(w.rows, r)
}

// series are the columns of the table.
var series = []struct {
	name  string
	unit  string
	slack float64 // by how much the last quarter of a run may exceed the second, beside a tenth; 0: by any amount
	of    func(r row) float64
}{
	{"resident", "MiB", 16, func(r row) float64 { return float64(r.server.Resident) / (1 << 20) }},
	{"heap", "MiB", 8, func(r row) float64 { return float64(r.server.Heap) / (1 << 20) }},
	{"locked", "MiB", 4, func(r row) float64 { return float64(r.server.Locked) / (1 << 20) }},
	{"descriptors", "", 40, func(r row) float64 { return float64(r.server.Files) }},
	{"goroutines", "", 40, func(r row) float64 { return float64(r.server.Goroutines) }},
	{"p50", "ms", 0, func(r row) float64 { return r.p50.Seconds() * 1e3 }},
	{"p99", "ms", 0, func(r row) float64 { return r.p99.Seconds() * 1e3 }},
}

// shown is the most rows of the table.
const shown = 30

// print writes the table.
func (w *world) print() {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "time\t")
	for _, s := range series {
		fmt.Fprintf(tw, "%s %s\t", s.name, s.unit)
	}
	fmt.Fprintln(tw, "cores\topen\thalf-open\techoes\tkept\tattacks\tstorms\t")
	for i := 0; i < len(w.rows); i += (len(w.rows) + shown - 1) / shown {
		r := w.rows[i]
		fmt.Fprintf(tw, "%v\t", r.at.Round(time.Second))
		for _, s := range series {
			fmt.Fprintf(tw, "%.4g\t", s.of(r))
		}
		fmt.Fprintf(tw, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.server.Cores, r.server.Open, r.server.HalfOpen, r.echoes, r.kept, r.acts, r.storms)
	}
	_ = tw.Flush() // into memory
	w.t.Logf("everything at once\n%s", &b)
}
