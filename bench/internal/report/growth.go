package report

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// Growth is what more connections and more cores cost.
type Growth struct {
	Size      int            `json:"size"`   // bytes of payload of all messages
	Cells     []Cell         `json:"cells"`  // one for each number of connections and of active ones
	Memory    []GrowthMemory `json:"memory"` // of those with many connections
	CoresLoad Load           `json:"cores_load"`
	Cores     []GrowthCores  `json:"cores"`
}

// GrowthMemory is what so many connections take in the servers.
type GrowthMemory struct {
	Conns   int            `json:"conns"`
	Results []MemoryResult `json:"results"`
}

// MemoryResult is resident memory of the process of a server, in bytes per connection,
// over what it had without any; the kernel's is not in it.
type MemoryResult struct {
	Server string `json:"server"`
	Idle   int64  `json:"idle"` // nothing was sent, and unused memory was given back
	Busy   int64  `json:"busy"` // right after all of them were active
}

// GrowthCores are the servers on so many cores each. The ratios of the results are to the
// same server on the fewest.
type GrowthCores struct {
	Cores   int      `json:"cores"`
	Results []Result `json:"results"`
}

// Empty says whether nothing was measured.
func (g *Growth) Empty() bool { return g == nil || len(g.Cells)+len(g.Cores) == 0 }

// Compute fills in the medians and ratios of the cores; cells have their own.
func (g *Growth) Compute() {
	for i := range g.Cores {
		for j := range g.Cores[i].Results {
			r, first := &g.Cores[i].Results[j], g.Cores[0].Results[j].Samples
			r.Median, r.Ratio = medians(r.Samples), nil
			if i > 0 {
				r.Ratio = &Ratios{
					Rate:      ratio(r.Samples, first, func(s Sample) float64 { return s.MessagesPerS }),
					P50:       ratio(r.Samples, first, func(s Sample) float64 { return s.P50US }),
					P99:       ratio(r.Samples, first, func(s Sample) float64 { return s.P99US }),
					ServerCPU: ratio(r.Samples, first, func(s Sample) float64 { return s.ServerCPUUS }),
				}
			}
		}
	}
}

// writeGrowth writes its tables, if there are any.
func (f *File) writeGrowth(b *bytes.Buffer) {
	g := f.Growth
	if g.Empty() {
		return
	}
	payload := quantity.Bytes(int64(g.Size))
	if len(g.Cells) > 0 {
		rounds := mediansOf(len(g.Cells[0].Results[0].Samples))
		f.writeGrowthCells(b, fmt.Sprintf("CPU of the server per message, %s, one open on each active connection (%s)", payload, rounds),
			func(r *Result) string { return quantity.Micros(r.Median.ServerCPUUS) }, func(r *Ratios) Ratio { return r.ServerCPU })
		f.writeGrowthCells(b, fmt.Sprintf("Messages/s, %s (%s)", payload, rounds),
			func(r *Result) string { return quantity.Count(r.Median.MessagesPerS) }, func(r *Ratios) Ratio { return r.Rate })
	}
	f.writeGrowthMemory(b)
	f.writeGrowthCores(b)
}

// writeGrowthCells writes one figure of all cells, and its ratios to the base.
func (f *File) writeGrowthCells(b *bytes.Buffer, title string, figure func(*Result) string, of func(*Ratios) Ratio) {
	b.WriteByte('\n')
	writeText(b, title, f.width())
	head := []string{"connections", "active"}
	var ratios []string
	for _, r := range f.Growth.Cells[0].Results {
		head = append(head, r.Server)
		if r.Server != f.Base {
			ratios = append(ratios, r.Server+" : "+f.Base)
		}
	}
	rows := [][]string{append(head, ratios...)}
	for i := range f.Growth.Cells {
		c := &f.Growth.Cells[i]
		row := []string{strconv.Itoa(c.Load.Conns), strconv.Itoa(c.Load.Active)}
		ratios = nil
		for j := range c.Results {
			r := &c.Results[j]
			row = append(row, figure(r))
			switch {
			case r.Server == f.Base:
			case r.Ratio == nil:
				ratios = append(ratios, "-")
			default:
				ratios = append(ratios, of(r.Ratio).String())
			}
		}
		rows = append(rows, append(row, ratios...))
	}
	f.writePairs(b, rows, len(head))
}

// writePairs writes rows whose first two columns belong together: where the table is cut,
// each part has both.
func (f *File) writePairs(b *bytes.Buffer, rows [][]string, apart int) {
	for i, row := range rows {
		rows[i] = append([]string{fmt.Sprintf("%-*s %*s", len("connections"), row[0], len("10000"), row[1])}, row[2:]...)
	}
	rows[0][0] = "connections active"
	writeAligned(b, rows, f.width(), apart-1)
}

// writeGrowthMemory writes what connections take.
func (f *File) writeGrowthMemory(b *bytes.Buffer) {
	if len(f.Growth.Memory) == 0 {
		return
	}
	b.WriteByte('\n')
	writeText(b, "Memory of the server per connection, idle and right after all were busy, without the kernel's", f.width())
	head := []string{"connections"}
	for _, r := range f.Growth.Memory[0].Results {
		head = append(head, r.Server+" idle", "busy")
	}
	rows := [][]string{head}
	for _, m := range f.Growth.Memory {
		row := []string{strconv.Itoa(m.Conns)}
		for _, r := range m.Results {
			row = append(row, perConnection(r.Idle), perConnection(r.Busy))
		}
		rows = append(rows, row)
	}
	writeAligned(b, rows, f.width(), 0)
}

// perConnection is a number of bytes, which can be negative: the heap shrank.
func perConnection(n int64) string {
	if n < 0 {
		return "-" + quantity.Bytes(-n)
	}
	return quantity.Bytes(n)
}

// writeGrowthCores writes what more cores change.
func (f *File) writeGrowthCores(b *bytes.Buffer) {
	g := f.Growth
	if len(g.Cores) == 0 {
		return
	}
	b.WriteByte('\n')
	writeText(b, fmt.Sprintf("Cores, %s (%s)", g.CoresLoad.Title(), mediansOf(len(g.Cores[0].Results[0].Samples))), f.width())
	first := fmt.Sprintf(" : %d", g.Cores[0].Cores)
	rows := [][]string{{"server", "cores", "msg/s", "server CPU", "p99", "msg/s" + first, "server CPU" + first}}
	for i := range g.Cores[0].Results {
		for _, c := range g.Cores {
			r := &c.Results[i]
			row := []string{
				r.Server, strconv.Itoa(c.Cores), quantity.Count(r.Median.MessagesPerS), quantity.Micros(r.Median.ServerCPUUS),
				quantity.Micros(r.Median.P99US),
			}
			if r.Ratio == nil {
				rows = append(rows, append(row, "base", "base"))
			} else {
				rows = append(rows, append(row, r.Ratio.Rate.String(), r.Ratio.ServerCPU.String()))
			}
		}
	}
	writeAligned(b, rows, f.width(), 0)
}
