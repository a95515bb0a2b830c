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

// Compute fills in the medians of a cell, and its ratios to base, from its samples.
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
				Rate: ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.MessagesPerS }),
				P50:  ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.P50US }),
				P99:  ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.P99US }),
				CPU:  ratio(r.Samples, baseSamples, c.Load.CPU),
			}
		}
	}
}

// CPU is the CPU time for each message, in microseconds, of the side that is compared.
func (l Load) CPU(s Sample) float64 {
	if l.Clients {
		return s.ClientCPUUS
	}
	return s.ServerCPUUS
}

// medians takes the median of each figure.
func medians(samples []Sample) Sample {
	var m Sample
	for _, figure := range []func(*Sample) *float64{
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
			values[i] = *figure(&samples[i])
		}
		*figure(&m) = Median(values)
	}
	for i, s := range samples {
		if i == 0 || s.Replies < m.Replies {
			m.Replies = s.Replies // the smallest number: it limits the trust in the quantiles
		}
	}
	m.UnsteadyStart = slices.ContainsFunc(samples, func(s Sample) bool { return s.UnsteadyStart })
	return m
}

// ratio compares samples of the same round, wherever they stand.
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
	if len(values) == 0 {
		return Ratio{}
	}
	r := Ratio{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), Rounds: len(values)}
	off := make([]float64, len(values))
	for i, v := range values {
		off[i] = math.Abs(v-r.Median) / r.Median
	}
	r.Spread = Median(off)
	return r
}
