package report

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// busyNoise is the noise above which no advice is given.
const busyNoise = 0.25

// compared is one load with the ratios of Subject to Rival.
type compared struct {
	load    Load
	rate    Ratio
	cpu     Ratio
	verdict Verdict
}

// compare pairs the rounds of Subject and Rival in every cell that can be judged.
func (f *File) compare(noise float64) (all []compared) {
	for _, c := range f.Cells {
		i := slices.IndexFunc(c.Results, func(r Result) bool { return r.Server == f.Subject })
		j := slices.IndexFunc(c.Results, func(r Result) bool { return r.Server == f.Rival })
		if i < 0 || j < 0 || c.unsteady(f.Subject) || c.unsteady(f.Rival) {
			continue
		}
		subject, rival := c.Results[i].Samples, c.Results[j].Samples
		x := compared{
			load: c.Load,
			rate: ratio(subject, rival, func(s Sample) float64 { return s.MessagesPerS }),
			cpu:  ratio(subject, rival, func(s Sample) float64 { return s.ServerCPUUS }),
		}
		if x.verdict = x.rate.Verdict(true, noise); x.verdict != Unknown {
			all = append(all, x)
		}
	}
	return all
}

// writeConclusion says in three lines, for somebody who sees this for the first
// time, where Subject is faster than Rival, in messages/s, where it is slower, and
// what to make of it.
func (f *File) writeConclusion(b *bytes.Buffer) {
	if f.Subject == "" || f.Rival == "" {
		return
	}
	noise := f.noise(measures[0])
	all := f.compare(noise)
	if len(all) == 0 {
		b.WriteByte('\n')
		writeText(b, fmt.Sprintf("Too few rounds to say whether %s is faster than %s: --rounds %d is the least.", f.Subject, f.Rival, EnoughRounds), f.width())
		return
	}
	slices.SortStableFunc(all, func(a, b compared) int { return cmp.Compare(b.rate.Median, a.rate.Median) })
	faster, slower := pick(all, Better), pick(all, Worse)
	best, worst := fmt.Sprintf("in none of %d loads", len(all)), "in none"
	if n := len(faster); n > 0 {
		best = fmt.Sprintf("in %d of %d loads: up to %.2f times (%s)", n, len(all), faster[0].rate.Median, faster[0].load.brief())
	}
	if n := len(slower); n > 0 {
		last := slower[n-1]
		worst = fmt.Sprintf("in %d: down to %.2f times (%s)", n, last.rate.Median, last.load.brief())
	}
	var cpu []float64
	for _, x := range all {
		cpu = append(cpu, x.cpu.Median)
	}
	last := fmt.Sprintf("On this machine %s; %s needs %.2f of %s's CPU.", f.advice(faster, slower), f.Subject, Median(cpu), f.Rival)
	if noise > busyNoise {
		last = "Something else uses this machine: rounds of the same load differ too much. Run it again when nothing else does."
	}
	b.WriteByte('\n')
	for _, line := range []string{
		fmt.Sprintf("%s is faster than %s %s.", f.Subject, f.Rival, best),
		fmt.Sprintf("It is slower %s; %d are within noise (%.0f %%).", worst, len(all)-len(faster)-len(slower), noise*100),
		last,
	} {
		writeText(b, line, f.width())
	}
}

// brief names a load in as few words as a sentence allows.
func (l Load) brief() string {
	if l.Depth == 1 {
		return strings.Replace(l.Title(), ", depth 1", "", 1)
	}
	return l.Title()
}

func pick(all []compared, v Verdict) (found []compared) {
	for _, x := range all {
		if x.verdict == v {
			found = append(found, x)
		}
	}
	return found
}

// advice says which one to take, if the loads that it wins and those that it
// loses differ in one thing.
func (f *File) advice(faster, slower []compared) string {
	switch {
	case len(faster)+len(slower) == 0:
		return "take either for loads like these"
	case len(slower) == 0:
		return fmt.Sprintf("take %s for loads like these", f.Subject)
	case len(faster) == 0:
		return fmt.Sprintf("take %s for loads like these", f.Rival)
	}
	for _, by := range []struct {
		of   func(compared) int
		text func(n int) string
	}{
		{func(x compared) int { return x.load.Size }, func(n int) string { return quantity.Bytes(int64(n)) }},
		{func(x compared) int { return x.load.Conns }, connections},
	} {
		lowWin, highWin := extremes(faster, by.of)
		lowLoss, highLoss := extremes(slower, by.of)
		switch {
		case highWin < lowLoss:
			return fmt.Sprintf("take %s up to %s, else %s", f.Subject, by.text(highWin), f.Rival)
		case highLoss < lowWin:
			return fmt.Sprintf("take %s from %s on, else %s", f.Subject, by.text(lowWin), f.Rival)
		}
	}
	return "look for a load like yours above"
}

func extremes(all []compared, of func(compared) int) (low, high int) {
	low, high = of(all[0]), of(all[0])
	for _, x := range all {
		low, high = min(low, of(x)), max(high, of(x))
	}
	return low, high
}
