package report

// Verdict is the meaning of a ratio.
type Verdict int

// The verdicts.
const (
	Same    Verdict = iota // no difference that can be told from noise
	Better                 // than the base
	Worse                  // than the base
	Unknown                // too few rounds
)

// EnoughRounds is the number of paired rounds that a verdict needs. Five agree by chance once
// in 16 times; with fewer, the spread is no measure of the noise either.
const EnoughRounds = 5

// Verdict judges r: all rounds must agree, and the median must differ from 1 by
// more than the noise.
func (r Ratio) Verdict(moreIsBetter bool, noise float64) Verdict {
	var v Verdict
	switch {
	case r.Rounds < EnoughRounds:
		return Unknown
	case r.Min > 1 && r.Median > 1+noise:
		v = Better
	case r.Max < 1 && r.Median < 1-noise:
		v = Worse
	default:
		return Same
	}
	if moreIsBetter {
		return v
	}
	return Better + Worse - v
}

// noise is the difference between rounds of the same comparison in a typical cell of this run:
// the median of their spreads. All verdicts of the report use it. It is 0 if no cell has enough
// rounds: then there is no verdict.
func (f *File) noise(m measure) float64 {
	var spreads []float64
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if r.Ratio == nil || r.Median.UnsteadyStart || c.unsteady(f.Base) {
				continue
			}
			if q := m.of(r.Ratio); q.Rounds >= EnoughRounds {
				spreads = append(spreads, q.Spread)
			}
		}
	}
	return Median(spreads)
}
