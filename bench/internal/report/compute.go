package report

import (
	"math"
	"slices"
)

// Median returns the median of values, 0 if there are none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Compute fills in the medians and ratios of every cell from its samples.
func (f *File) Compute() {
	for i := range f.Cells {
		f.Cells[i].Compute(f.Base)
	}
}

// Compute does so for one cell.
func (c *Cell) Compute(base string) {
	var baseSamples []Sample
	for i := range c.Results {
		r := &c.Results[i]
		r.Median = medians(r.Samples)
		r.Syscalls.Median = Median(r.Syscalls.PerMessage)
		if r.Server == base {
			baseSamples = r.Samples
		}
	}
	for i := range c.Results {
		r := &c.Results[i]
		r.Ratio = nil
		if r.Server != base && len(baseSamples) > 0 && len(r.Samples) > 0 {
			r.Ratio = &Ratios{
				Rate:      ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.MessagesPerS }),
				P50:       ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.P50US }),
				P99:       ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.P99US }),
				ServerCPU: ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.ServerCPUUS }),
			}
		}
	}
}

// medians takes the median of each figure.
func medians(samples []Sample) Sample {
	var m Sample
	for _, f := range []func(*Sample) *float64{
		func(s *Sample) *float64 { return &s.Messages },
		func(s *Sample) *float64 { return &s.WindowS },
		func(s *Sample) *float64 { return &s.MessagesPerS },
		func(s *Sample) *float64 { return &s.MBPerS },
		func(s *Sample) *float64 { return &s.P50US },
		func(s *Sample) *float64 { return &s.P99US },
		func(s *Sample) *float64 { return &s.P999US },
		func(s *Sample) *float64 { return &s.ServerCPUUS },
		func(s *Sample) *float64 { return &s.ClientCPUUS },
	} {
		values := make([]float64, len(samples))
		for i := range samples {
			values[i] = *f(&samples[i])
		}
		*f(&m) = Median(values)
	}
	for i, s := range samples {
		if i == 0 || s.Replies < m.Replies {
			m.Replies = s.Replies // the worst case: it says how far to trust the quantiles
		}
	}
	m.UnsteadyStart = slices.ContainsFunc(samples, func(s Sample) bool { return s.UnsteadyStart })
	return m
}

// ratio compares samples of the same round.
func ratio(samples, base []Sample, figure func(Sample) float64) Ratio {
	var values []float64
	for _, s := range samples {
		i := slices.IndexFunc(base, func(b Sample) bool { return b.Round == s.Round })
		if i < 0 {
			continue
		}
		if q := figure(s) / figure(base[i]); !math.IsNaN(q) && !math.IsInf(q, 0) {
			values = append(values, q)
		}
	}
	return summed(values)
}

// summed is the ratio that rounds agree on.
func summed(values []float64) Ratio {
	if len(values) == 0 {
		return Ratio{}
	}
	return Ratio{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), Rounds: len(values)}
}

// Verdict is what a ratio says.
type Verdict int

// The verdicts.
const (
	Same   Verdict = iota // no difference that can be told from noise
	Better                // than the base
	Worse                 // than the base
)

const (
	enoughRounds = 5    // from which on a small difference is believed
	smallStep    = 0.02 // the smallest difference that counts then
	largeStep    = 0.05 // and with fewer rounds
)

// Verdict judges r: all rounds must agree, and the median must differ from 1
// by 2 %, or by 5 % when there are fewer than five rounds. With a single round
// nothing can be said.
func (r Ratio) Verdict(moreIsBetter bool) Verdict {
	step := smallStep
	if r.Rounds < enoughRounds {
		step = largeStep
	}
	var v Verdict
	switch {
	case r.Rounds < 2:
		return Same
	case r.Min > 1 && r.Median >= 1+step:
		v = Better
	case r.Max < 1 && r.Median <= 1-step:
		v = Worse
	default:
		return Same
	}
	if moreIsBetter {
		return v
	}
	return Better + Worse - v
}
