package report

import (
	"bytes"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// WriteTable writes the machine, one table per cell, that of the frame codec, and
// the summary.
func (f *File) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	f.writeHead(&b)
	for i := range f.Cells {
		f.writeCell(&b, &f.Cells[i])
	}
	f.writeCodec(&b)
	f.writeStorm(&b)
	f.writeGrowth(&b)
	f.writeStorage(&b)
	if len(f.Cells) > 0 || len(f.Servers) > 0 && f.Growth.Empty() {
		f.writeSummary(&b)
	}
	f.writeNotes(&b)
	f.writeConclusion(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// WriteHead writes the part of the table that comes before the cells.
func (f *File) WriteHead(w io.Writer) error {
	var b bytes.Buffer
	f.writeHead(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// WriteSummary writes the part that comes after the cells.
func (f *File) WriteSummary(w io.Writer) error {
	var b bytes.Buffer
	f.writeGrowth(&b)
	f.writeSummary(&b)
	f.writeNotes(&b)
	f.writeConclusion(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// writeHead says what was compared, and where.
func (f *File) writeHead(b *bytes.Buffer) {
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
	writeText(b, head, f.width())
	for _, s := range f.Servers {
		writeText(b, fmt.Sprintf("  %s: %s", s.Name, s.About), f.width())
	}
}

// WriteCell writes the table of one cell.
func (f *File) WriteCell(w io.Writer, c *Cell) error {
	var b bytes.Buffer
	f.writeCell(&b, c)
	_, err := w.Write(b.Bytes())
	return err
}

func (f *File) writeCell(b *bytes.Buffer, c *Cell) {
	rounds := 0
	for _, r := range c.Results {
		rounds = max(rounds, len(r.Samples))
	}
	b.WriteByte('\n')
	writeText(b, fmt.Sprintf("%s (%s)", c.Load.Title(), mediansOf(rounds)), f.width())
	rows := [][]string{{
		"server", "msg/s", "MB/s", "p50", "p99", "p99.9", "server CPU", "client CPU", "syscalls",
		"msg/s : " + f.Base, "p99 : " + f.Base, "server CPU : " + f.Base,
	}}
	for _, r := range c.Results {
		rows = append(rows, r.row(f.Base))
	}
	apart := len(rows[0]) - 3
	if c.Load.Beside.Conns > 0 {
		rows[0] = append(rows[0], "streams MB/s")
		for i, r := range c.Results {
			rows[i+1] = append(rows[i+1], quantity.Count(r.Median.BesideMBPerS))
		}
	}
	writeAligned(b, rows, f.width(), apart)
}

// mediansOf says what the figures of a table are.
func mediansOf(rounds int) string {
	if rounds == 1 {
		return "one round"
	}
	return fmt.Sprintf("medians of %d rounds", rounds)
}

// row formats one line of a cell's table.
func (r Result) row(base string) []string {
	if len(r.Samples) == 0 {
		return []string{r.Server, "not measured"}
	}
	m := r.Median
	latency := func(us float64, beyond uint64) string {
		switch {
		case us == 0:
			return "-"
		case m.UnsteadyStart:
			return "> " + quantity.Micros(us)
		case m.Replies < beyond:
			return "~ " + quantity.Micros(us)
		}
		return quantity.Micros(us)
	}
	row := []string{
		r.Server, quantity.Count(m.MessagesPerS), quantity.Count(m.MBPerS),
		latency(m.P50US, 1), latency(m.P99US, 100), latency(m.P999US, 1000),
		quantity.Micros(m.ServerCPUUS), quantity.Micros(m.ClientCPUUS), r.Syscalls.String(),
	}
	switch {
	case r.Server == base:
		row = append(row, "base", "base", "base")
	case r.Ratio == nil:
		row = append(row, "-", "-", "-")
	default:
		row = append(row, r.Ratio.Rate.String(), r.Ratio.P99.String(), r.Ratio.ServerCPU.String())
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
	switch {
	case !s.Known():
		return "n/a"
	case s.AtLeast:
		return fmt.Sprintf(">= %.2f", s.Median)
	}
	return fmt.Sprintf("%.2f", s.Median)
}
