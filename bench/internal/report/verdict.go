package report

// Verdict is what a ratio says.
type Verdict int

// The verdicts.
const (
	Same    Verdict = iota // no difference that can be told from noise
	Better                 // than the base
	Worse                  // than the base
	Unknown                // too few rounds to say anything
)

// EnoughRounds is how many paired rounds a ratio needs to be judged. That five
// agree by chance happens once in 16 times; with fewer, the spread is no
// measure of the noise either.
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

// noise is by how much rounds of the same comparison differ in a typical cell of
// this run: the median of their spreads. Everything in the report that takes a
// difference for real or for none uses it. It is 0 if no cell has enough rounds:
// then none is judged.
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
