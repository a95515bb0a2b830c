package report

import "testing"

// Matrix: BE-07
func TestVerdictsNeedAgreementAndADifference(t *testing.T) {
	for _, c := range []struct {
		r    Ratio
		want verdict
	}{
		{Ratio{Median: 1.03, Min: 1.01, Max: 1.05, Rounds: EnoughRounds}, better},
		{Ratio{Median: 1.02, Min: 1.01, Max: 1.05, Rounds: 7}, same}, // no more than a machine differs
		{Ratio{Median: 1.03, Min: 0.99, Max: 1.05, Rounds: 7}, same}, // a round disagrees
		{Ratio{Median: 0.97, Min: 0.95, Max: 0.99, Rounds: 5}, worse},
		{Ratio{Median: 0.98, Min: 0.95, Max: 0.99, Rounds: 5}, same},
		{Ratio{Median: 0.97, Min: 0.95, Max: 1.001, Rounds: 5}, same},
		{Ratio{Median: 2, Min: 1.9, Max: 2.1, Rounds: EnoughRounds - 1}, unjudged},
		{Ratio{}, unjudged},
	} {
		if got := c.r.verdict(true); got != c.want {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
		mirrored := map[verdict]verdict{better: worse, worse: better, same: same, unjudged: unjudged}[c.want]
		if got := c.r.verdict(false); got != mirrored {
			t.Errorf("%+v, less is better: %v, want %v", c.r, got, mirrored)
		}
	}
}
