package report

import (
	"bytes"
	"fmt"
	"strings"
)

// measure is one of the figures that the summary judges.
type measure struct {
	name         string
	moreIsBetter bool
	of           func(*Ratios) Ratio
}

var measures = [...]measure{
	{"messages/s", true, func(r *Ratios) Ratio { return r.Rate }},
	{"p99 latency", false, func(r *Ratios) Ratio { return r.P99 }},
	{"CPU per message", false, func(r *Ratios) Ratio { return r.CPU }},
}

// writeSummary says for each server where it loses and wins against the base,
// losses first.
func (f *File) writeSummary(b *bytes.Buffer) {
	for _, s := range f.Servers {
		if s.Name == f.Base {
			continue
		}
		fmt.Fprintf(b, "\n%s against %s\n", s.Name, f.Base)
		compared := false
		for _, m := range measures {
			compared = f.writeMeasure(b, s.Name, m) || compared
		}
		if !compared {
			b.WriteString("  no cell compares them\n")
		}
	}
	f.writeNoise(b)
}

// writeNoise says which differences the summary takes for real.
func (f *File) writeNoise(b *bytes.Buffer) {
	var noise []string
	for _, m := range measures {
		if n := f.noise(m); n > 0 {
			noise = append(noise, fmt.Sprintf("%s %.1f %%", m.name, n*100))
		}
	}
	if len(noise) == 0 {
		fmt.Fprintf(b, "\nNothing is judged: that takes %d rounds.\n", EnoughRounds)
		return
	}
	b.WriteByte('\n')
	writeText(b, "Noise: half of the paired rounds of a typical cell lie within this of their median:")
	writeText(b, "  "+strings.Join(noise, ", "))
	writeText(b, "A cell is better or worse when all its rounds agree and its median differs by more than that.")
}

// writeMeasure writes one figure of one server and says whether there was any.
func (f *File) writeMeasure(b *bytes.Buffer, server string, m measure) bool {
	var lists [4][]string
	total, doubtful := 0, 0
	noise := f.noise(m)
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if r.Server != server || r.Ratio == nil {
				continue
			}
			q := m.of(r.Ratio)
			if q.Rounds == 0 {
				continue
			}
			total++
			if r.Median.UnsteadyStart || c.unsteady(f.Base) {
				doubtful++
				continue
			}
			v := q.Verdict(m.moreIsBetter, noise)
			lists[v] = append(lists[v], fmt.Sprintf("%s %v", c.Load, q))
		}
	}
	if total == 0 {
		return false
	}
	line := fmt.Sprintf("  %s: worse in %d, better in %d, the same in %d of %d cells",
		m.name, len(lists[Worse]), len(lists[Better]), len(lists[Same]), total)
	if doubtful > 0 {
		line += fmt.Sprintf(", %d marked > not judged", doubtful)
	}
	if n := len(lists[Unknown]); n > 0 {
		line += fmt.Sprintf(", %d of too few rounds", n)
	}
	writeText(b, line)
	for _, l := range []struct {
		name  string
		cells []string
	}{{"worse", lists[Worse]}, {"better", lists[Better]}} {
		for _, c := range l.cells {
			fmt.Fprintf(b, "    %-6s  %s\n", l.name, c)
		}
	}
	return true
}

// unsteady says whether the figures of a server are doubtful.
func (c *Cell) unsteady(server string) bool {
	for _, r := range c.Results {
		if r.Server == server {
			return r.Median.UnsteadyStart
		}
	}
	return false
}

// writeNotes explains some of the figures.
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
