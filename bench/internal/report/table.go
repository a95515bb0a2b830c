package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// WriteTable writes the machine, one table per cell, and the summary.
func (f *File) WriteTable(w io.Writer) error {
	err := f.WriteHead(w)
	for i := range f.Cells {
		err = errors.Join(err, f.WriteCell(w, &f.Cells[i]))
	}
	return errors.Join(err, f.WriteSummary(w))
}

// WriteHead writes the part of the table that comes before the cells: the servers and the machine.
func (f *File) WriteHead(w io.Writer) error {
	var b bytes.Buffer
	m := f.Machine
	head := fmt.Sprintf("%s, %d cores, Linux %s, %s", m.CPU, m.Cores, m.Kernel, m.Go)
	if m.Commit != "" {
		head += fmt.Sprintf(", commit %.12s", m.Commit)
		if m.Modified {
			head += " with changes"
		}
	}
	if f.Mode == "secure" {
		head += ", mode secure"
	}
	writeText(&b, head)
	for _, s := range f.Servers {
		writeText(&b, fmt.Sprintf("  %s: %s", s.Name, s.About))
	}
	_, err := b.WriteTo(w)
	return err
}

// WriteCell writes the table of one cell.
func (f *File) WriteCell(w io.Writer, c *Cell) error {
	var b bytes.Buffer
	rows := [][]string{c.Load.columns(f.Base)}
	for i := range c.Results {
		rows = append(rows, c.Results[i].row(f.Base))
	}
	if slices.ContainsFunc(c.Results, func(r Result) bool { return r.BytesPerConn > 0 }) {
		rows[0] = slices.Insert(rows[0], figureColumns, "idle conn")
		for i, r := range c.Results {
			if row := rows[i+1]; len(row) > figureColumns { // it was measured
				rows[i+1] = slices.Insert(row, figureColumns, cli.Bytes(r.BytesPerConn))
			}
		}
	}
	rounds := 0
	for i := range c.Results {
		rounds = max(rounds, len(c.Results[i].Samples))
	}
	medians := fmt.Sprintf("medians of %d rounds", rounds)
	if rounds == 1 {
		medians = "one round"
	}
	b.WriteByte('\n')
	writeText(&b, fmt.Sprintf("%v (%s)", c.Load, medians))
	writeColumns(&b, rows, 1, figureColumns)
	rows = slices.DeleteFunc(rows, func(row []string) bool { return len(row) <= figureColumns })
	writeColumns(&b, rows, figureColumns, len(rows[0]))
	_, err := b.WriteTo(w)
	return err
}

// writeColumns writes the first column of rows to the left, and the columns from first to end-1 to
// the right of it.
func writeColumns(b *bytes.Buffer, rows [][]string, first, end int) {
	widest := 0
	for _, row := range rows {
		widest = max(widest, len(row[0]))
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintf(t, "%-*s\t%s\t\n", widest, row[0], strings.Join(row[first:min(end, len(row))], "\t"))
	}
	_ = t.Flush() // a Buffer takes everything
}

// writeText writes a paragraph, broken between words. It keeps its indentation;
// lines from the second on have two columns more.
func writeText(b *bytes.Buffer, text string) {
	indent := len(text) - len(strings.TrimLeft(text, " "))
	cli.Hang(b, text[:indent], text, indent+2, cli.Width)
}

// figureColumns is the number of columns of the first table of a cell. The others, the ratios among
// them, are those of the second.
const figureColumns = 9

// columns are the heads of the table of a cell.
func (l Load) columns(base string) []string {
	rate := "msg/s"
	if l.What != "" {
		rate = "req/s"
	}
	side := "server"
	if l.Clients {
		side = "client"
	}
	return []string{
		side, rate, "MB/s", "p50", "p99", "p99.9", "server CPU", "client CPU", "syscalls",
		rate + " : " + base, "p99 : " + base, side + " CPU : " + base,
	}
}

// row formats one line of a cell's table.
func (r Result) row(base string) []string {
	if len(r.Samples) == 0 {
		return append([]string{r.Server, "not measured"}, make([]string, figureColumns-2)...)
	}
	m := r.Median
	latency := func(us float64, beyond uint64) string {
		switch {
		case us == 0:
			return "-"
		case m.UnsteadyStart:
			return "> " + cli.Micros(us)
		case m.Replies < beyond:
			return "~ " + cli.Micros(us)
		}
		return cli.Micros(us)
	}
	row := []string{
		r.Server, cli.Count(m.MessagesPerS), cli.Count(m.MBPerS),
		latency(m.P50US, 1), latency(m.P99US, 100), latency(m.P999US, 1000),
		cli.Micros(m.ServerCPUUS), cli.Micros(m.ClientCPUUS), r.Syscalls.String(),
	}
	switch {
	case r.Server == base:
		row = append(row, "base", "base", "base")
	case r.Ratio == nil:
		row = append(row, "-", "-", "-")
	default:
		row = append(row, r.Ratio.Rate.String(), r.Ratio.P99.String(), r.Ratio.CPU.String())
	}
	return row
}

// String writes the median and the extremes, which one round does not have.
func (r Ratio) String() string {
	switch r.Rounds {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf("%.2f (1 round)", r.Median)
	}
	return fmt.Sprintf("%.2f (%.2f..%.2f)", r.Median, r.Min, r.Max)
}

// String writes the median, or "n/a".
func (s Syscalls) String() string {
	if !s.Known() {
		return "n/a"
	}
	return fmt.Sprintf("%.2f", s.Median)
}

// EnoughRounds is the number of paired rounds that a verdict needs: five agree by chance once in
// 16 times.
const EnoughRounds = 5

// leastDifference is that of a median from 1. A smaller one comes and goes on the machines that were
// measured (bench/README.md).
const leastDifference = 0.1

// verdict is the meaning of a ratio.
type verdict string

const (
	worse    verdict = "worse"
	better   verdict = "better"
	same     verdict = "same"
	unjudged verdict = "not judged"
)

// verdict judges r: all rounds must agree, and their median must differ.
func (r Ratio) verdict(moreIsBetter bool) verdict {
	low, high := worse, better
	if !moreIsBetter {
		low, high = better, worse
	}
	switch {
	case r.Rounds < EnoughRounds:
		return unjudged
	case r.Min > 1 && r.Median > 1+leastDifference:
		return high
	case r.Max < 1 && r.Median < 1-leastDifference:
		return low
	}
	return same
}

// WriteSummary writes the part that comes after the cells: where each server loses and wins against the
// base, losses first, and the notes.
func (f *File) WriteSummary(w io.Writer) error {
	var b bytes.Buffer
	for _, s := range f.Servers {
		if s.Name == f.Base {
			continue
		}
		fmt.Fprintf(&b, "\n%s against %s\n", s.Name, f.Base)
		f.writeVerdicts(&b, s.Name, "messages/s", true, func(r *Ratios) Ratio { return r.Rate })
		f.writeVerdicts(&b, s.Name, "p99 latency", false, func(r *Ratios) Ratio { return r.P99 })
		f.writeVerdicts(&b, s.Name, "CPU per message", false, func(r *Ratios) Ratio { return r.CPU })
	}
	b.WriteByte('\n')
	const rule = "A cell is better or worse when all of its rounds agree, %d at least, and their median differs by " +
		"more than %v %%."
	writeText(&b, fmt.Sprintf(rule, EnoughRounds, 100*leastDifference))
	f.writeNotes(&b)
	_, err := b.WriteTo(w)
	return err
}

// writeVerdicts writes those of one figure of one server.
func (f *File) writeVerdicts(b *bytes.Buffer, server, name string, moreIsBetter bool, of func(*Ratios) Ratio) {
	cells := map[verdict][]string{}
	total := 0
	for _, c := range f.Cells {
		base := slices.IndexFunc(c.Results, func(r Result) bool { return r.Server == f.Base })
		for _, r := range c.Results {
			if r.Server != server || r.Ratio == nil || of(r.Ratio).Rounds == 0 {
				continue
			}
			q := of(r.Ratio)
			v := q.verdict(moreIsBetter)
			if r.Median.UnsteadyStart || c.Results[base].Median.UnsteadyStart {
				v = unjudged
			}
			total++
			cells[v] = append(cells[v], fmt.Sprintf("    %-6s  %s %v\n", v, c.Load, q))
		}
	}
	line := fmt.Sprintf("  %s: worse in %d, better in %d, the same in %d of %d cells", name,
		len(cells[worse]), len(cells[better]), len(cells[same]), total)
	if n := len(cells[unjudged]); n > 0 {
		line += fmt.Sprintf(", %d not judged", n)
	}
	writeText(b, line)
	b.WriteString(strings.Join(slices.Concat(cells[worse], cells[better]), ""))
}

func (f *File) writeNotes(b *bytes.Buffer) {
	if f.marked(func(s Sample) bool { return s.Replies < 1000 }) {
		writeText(b, "~: too few replies per round for this quantile, it is about the largest latency.")
	}
	if f.marked(func(s Sample) bool { return s.UnsteadyStart }) {
		writeText(b, ">: measured before the queues had filled, the latency in the long run is higher and the rate may be another.")
	}
	for _, n := range f.Notes {
		writeText(b, fmt.Sprintf("Note: %s.", n))
	}
}

// marked says whether a sample in the tables has a property.
func (f *File) marked(has func(Sample) bool) bool {
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if len(r.Samples) > 0 && has(r.Median) {
				return true
			}
		}
	}
	return false
}
