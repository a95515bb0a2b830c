package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// EnoughRounds is the number of paired rounds that a verdict needs: five agree by chance once in
// 16 times.
const EnoughRounds = 5

// leastDifference is that of a median from 1. Machines differ from themselves by as much.
const leastDifference = 0.02

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

// writeSummary says for each server where it loses and wins against the base, losses first.
func (f *File) writeSummary(b *bytes.Buffer) {
	for _, s := range f.Servers {
		if s.Name == f.Base {
			continue
		}
		fmt.Fprintf(b, "\n%s against %s\n", s.Name, f.Base)
		f.writeVerdicts(b, s.Name, "messages/s", true, func(r *Ratios) Ratio { return r.Rate })
		f.writeVerdicts(b, s.Name, "p99 latency", false, func(r *Ratios) Ratio { return r.P99 })
		f.writeVerdicts(b, s.Name, "CPU per message", false, func(r *Ratios) Ratio { return r.CPU })
	}
	b.WriteByte('\n')
	writeText(b, fmt.Sprintf("A cell is better or worse when all of its rounds agree, %d at least, and their median differs by more than %v %%.",
		EnoughRounds, 100*leastDifference))
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
	line := fmt.Sprintf("  %s: worse in %d, better in %d, the same in %d of %d cells", name, len(cells[worse]), len(cells[better]), len(cells[same]), total)
	if n := len(cells[unjudged]); n > 0 {
		line += fmt.Sprintf(", %d not judged", n)
	}
	writeText(b, line)
	b.WriteString(strings.Join(slices.Concat(cells[worse], cells[better]), ""))
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
