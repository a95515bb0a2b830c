package report

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteTable writes the machine, one table per cell, that of the frame codec, and
// the summary.
func (f *File) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	f.writeHead(&b)
	for i := range f.Cells {
		f.Cells[i].write(&b, f.Base)
	}
	f.writeCodec(&b)
	f.writeStorm(&b)
	if len(f.Servers) > 0 {
		f.writeSummary(&b)
	}
	f.writeNotes(&b)
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
	f.writeSummary(&b)
	f.writeNotes(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// writeHead says what was compared, and where.
func (f *File) writeHead(b *bytes.Buffer) {
	m := f.Machine
	fmt.Fprintf(b, "%s, %d cores, Linux %s, %s", m.CPU, m.Cores, m.Kernel, m.Go)
	if m.Commit != "" {
		fmt.Fprintf(b, ", commit %.12s", m.Commit)
		if m.Modified {
			b.WriteString(" with changes")
		}
	}
	if f.Mode == "secure" {
		b.WriteString(", mode secure")
	}
	b.WriteString("\n")
	for _, s := range f.Servers {
		fmt.Fprintf(b, "  %-8s %s\n", s.Name, s.About)
	}
}

// Write writes the table of one cell.
func (c *Cell) Write(w io.Writer, base string) error {
	var b bytes.Buffer
	c.write(&b, base)
	_, err := w.Write(b.Bytes())
	return err
}

func (c *Cell) write(b *bytes.Buffer, base string) {
	rounds := 0
	for _, r := range c.Results {
		rounds = max(rounds, len(r.Samples))
	}
	unit := "rounds"
	if rounds == 1 {
		unit = "round"
	}
	fmt.Fprintf(b, "\n%s (medians of %d %s)\n", c.Load.Title(), rounds, unit)
	rows := [][]string{{
		"server", "msg/s", "MB/s", "p50", "p99", "p99.9", "server CPU", "client CPU", "syscalls",
		"msg/s : " + base, "p99 : " + base, "server CPU : " + base,
	}}
	for _, r := range c.Results {
		rows = append(rows, r.row(base))
	}
	writeAligned(b, rows)
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
			return "> " + micros(us)
		case m.Replies < beyond:
			return "~ " + micros(us)
		}
		return micros(us)
	}
	row := []string{
		r.Server, count(m.MessagesPerS), count(m.MBPerS),
		latency(m.P50US, 1), latency(m.P99US, 100), latency(m.P999US, 1000),
		micros(m.ServerCPUUS), micros(m.ClientCPUUS), r.Syscalls.String(),
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

// String writes the median and the extremes.
func (r Ratio) String() string {
	if r.Rounds == 0 {
		return "-"
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

// count writes a rate with three digits or more.
func count(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// micros writes a time with three digits and a unit that suits it.
func micros(us float64) string {
	unit := "us"
	switch {
	case us >= 1e6:
		us, unit = us/1e6, "s"
	case us >= 1e3:
		us, unit = us/1e3, "ms"
	}
	digits := 2
	switch {
	case us >= 100:
		digits = 0
	case us >= 10:
		digits = 1
	}
	return strconv.FormatFloat(us, 'f', digits, 64) + " " + unit
}

// writeAligned writes rows in columns, the first one to the left and the
// others to the right.
func writeAligned(b *bytes.Buffer, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString("  " + cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
