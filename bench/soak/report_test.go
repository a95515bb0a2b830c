package soak

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
)

// row is what one window showed: the steady server, and all sessions.
type row struct {
	at       time.Duration
	server   serverSample
	echoes   uint64 // since the beginning
	kept     int64  // reads and writes of files that succeeded, the same
	p50, p99 time.Duration
	storms   int64
	handOver int64
	acts     int64
}

// row looks at everything.
func (w *world) row(began time.Time) {
	s, err := w.steady.ask(w.t.Context(), serverRequest{})
	if err != nil {
		w.t.Error(err)
		return
	}
	took := latency.New()
	r := row{at: time.Since(began), server: s, storms: w.storms.Load(), handOver: w.handOver.Load(), acts: w.acts.Load()}
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

// shown is the most rows of the table.
const shown = 30

// series are the columns that are plotted.
var series = []struct {
	name  string
	unit  string
	slack float64 // how much the last quarter of a run may have more than the second, beside a tenth; 0: any
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

// print writes the table, and the plot if it is asked for.
func (w *world) print() {
	if len(w.rows) == 0 {
		return
	}
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "time\tresident\tlocked\theap\tfiles\tgoroutines\tcores\topen\thalf-open\tin flight\tsending\tp50\tp99\techoes\tkept\theld\tfull\treopened\tattacks\tstorms\thand-overs\t")
	for i := 0; i < len(w.rows); i += (len(w.rows) + shown - 1) / shown {
		r := w.rows[i]
		size := func(n int64) string { return strings.ReplaceAll(humanize.IBytes(uint64(n)), " ", "") }
		fmt.Fprintf(tw, "%v\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%v\t%v\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.at.Round(time.Second),
			size(r.server.Resident), size(r.server.Locked), size(int64(r.server.Heap)), r.server.Files, r.server.Goroutines, r.server.Cores, r.server.Open, r.server.HalfOpen,
			size(r.server.InFlight), size(r.server.Sending), r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond), r.echoes, r.kept,
			r.server.Storage.Held, r.server.Storage.Full, r.server.Storage.Reopened, r.acts, r.storms, r.handOver)
	}
	_ = tw.Flush() // into memory
	for _, s := range series {
		fmt.Fprintf(&b, "%11s %s\n", s.name, sparkline(w.rows, s.of, s.unit))
	}
	w.t.Logf("everything at once\n%s", &b)
	if *plotFile != "" {
		if err := os.WriteFile(*plotFile, plot(w.rows), 0o644); err != nil {
			w.t.Error(err)
		}
	}
}

// sparkline is a row of bars of eight heights, from 0 to the greatest value.
func sparkline(rows []row, of func(row) float64, unit string) string {
	most, bars := 0.0, strings.Builder{}
	for _, r := range rows {
		most = max(most, of(r))
	}
	for _, r := range rows {
		bars.WriteRune([]rune("▁▂▃▄▅▆▇█")[int(of(r)/max(most, 1e-9)*7)])
	}
	return fmt.Sprintf("%s 0..%.4g %s", bars.String(), most, unit)
}

// plot draws one curve above the other.
func plot(rows []row) []byte {
	const width, height, left = 720, 90, 130
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		left+width+20, len(series)*(height+20)+30)
	last := rows[len(rows)-1].at
	for i, s := range series {
		most := 0.0
		for _, r := range rows {
			most = max(most, s.of(r))
		}
		bottom := (i+1)*(height+20) - 10
		fmt.Fprintf(&b, `<text x="4" y="%d">%s</text><text x="4" y="%d" fill="#666">0..%.4g %s</text>`, bottom-height/2, s.name, bottom-height/2+16, most, s.unit)
		fmt.Fprintf(&b, `<path d="M%d %dh%d" stroke="#ccc"/><polyline fill="none" stroke="#1667b0" stroke-width="1.5" points="`, left, bottom, width)
		for _, r := range rows {
			fmt.Fprintf(&b, "%.1f,%.1f ", left+width*r.at.Seconds()/last.Seconds(), float64(bottom)-height*s.of(r)/max(most, 1e-9))
		}
		b.WriteString("\"/>\n")
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">%v</text></svg>`+"\n", left+width-40, len(series)*(height+20)+20, last.Round(time.Second))
	return b.Bytes()
}
