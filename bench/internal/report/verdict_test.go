package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
)

func of(median, low, high float64, rounds int) Ratio {
	return Ratio{Median: median, Min: low, Max: high, Rounds: rounds}
}

// Matrix: BE-07
func TestVerdictsNeedAgreementAndMoreThanNoise(t *testing.T) {
	for _, c := range []struct {
		r     Ratio
		noise float64
		want  Verdict
	}{
		{of(1.03, 1.01, 1.05, 5), 0.02, Better},
		{of(1.03, 1.01, 1.05, 5), 0.03, Same},        // no more than the noise
		{of(1.03, 0.99, 1.05, 5), 0.02, Same},        // a round disagrees
		{of(1.10, 1.05, 1.15, 7), 0.12, Same},        // a noisy run
		{of(0.97, 0.95, 0.99, 5), 0.02, Worse},       // the mirror image
		{of(0.97, 0.95, 0.99, 5), 0.04, Same},        //
		{of(0.97, 0.95, 1.001, 5), 0.02, Same},       //
		{of(2, 1.9, 2.1, 4), 0.02, Unknown},          // too few rounds
		{of(0.5, 0.5, 0.5, 1), 0, Unknown},           // one round is no proof
		{Ratio{}, 0.02, Unknown},                     //
		{of(1.2, 1.1, 1.3, EnoughRounds), 0, Better}, // a run without noise
	} {
		if got := c.r.Verdict(true, c.noise); got != c.want {
			t.Errorf("%+v, noise %v: %v, want %v", c.r, c.noise, got, c.want)
		}
		mirrored := map[Verdict]Verdict{Better: Worse, Worse: Better, Same: Same, Unknown: Unknown}[c.want]
		if got := c.r.Verdict(false, c.noise); got != mirrored {
			t.Errorf("%+v, noise %v, less is better: %v, want %v", c.r, c.noise, got, mirrored)
		}
	}
}

// paired is a cell in which rate of "ours" is that of "theirs" times each of
// the factors, round by round.
func paired(l Load, cpu float64, factors ...float64) Cell {
	c := Cell{Load: l, Results: []Result{{Server: "ours"}, {Server: "theirs"}}}
	for i, x := range factors {
		c.Results[0].Samples = append(c.Results[0].Samples, Sample{Round: i + 1, Replies: 5000, MessagesPerS: 1000 * x, ServerCPUUS: cpu, P99US: 1})
		c.Results[1].Samples = append(c.Results[1].Samples, Sample{Round: i + 1, Replies: 5000, MessagesPerS: 1000, ServerCPUUS: 1, P99US: 1})
	}
	c.Compute("theirs")
	return c
}

func run(cells ...Cell) *File {
	return &File{Base: "theirs", Servers: []Server{{Name: "theirs"}, {Name: "ours"}}, Cells: cells}
}

func TestNoiseIsTheSpreadOfATypicalCell(t *testing.T) {
	small := Load{Size: 64, Conns: 1, Depth: 1}
	f := run(
		paired(small, 1, 1.00, 0.99, 1.01, 1.3, 0.99),  // 1 %, and a round that was disturbed
		paired(small, 1, 1.00, 0.95, 1.05, 0.90, 1.10), // 5 %
		paired(small, 1, 1.00, 0.50, 1.50, 0.40, 1.60), // 50 %
		paired(small, 1, 1.00, 0.10, 1.90, 1),          // too few rounds
		paired(small, 1, 2.00, 1.80, 2.20, 1.00, 3.00), // 10 % of its median
		paired(small, 1, 0.50, 0.45, 0.55, 0.40, 0.60), // 10 % as well
	)
	if got := f.noise(measures[0]); math.Abs(got-0.1) > 1e-9 {
		t.Errorf("noise %v, want 0.1", got)
	}
	f.Cells[2].Results[0].Median.UnsteadyStart = true // not judged, so no measure either
	if got := f.noise(measures[0]); math.Abs(got-0.075) > 1e-9 {
		t.Errorf("noise %v, want 0.075", got)
	}
	f.Cells = f.Cells[:2]
	if got := f.noise(measures[0]); math.Abs(got-0.03) > 1e-9 {
		t.Errorf("noise %v, want 0.03", got)
	}
	if got := (&File{}).noise(measures[0]); got != 0 {
		t.Errorf("noise %v of nothing", got)
	}
}

// The text names the threshold that decides.
// Matrix: BE-07
func TestTheSummaryTakesForRealWhatIsMoreThanNoise(t *testing.T) {
	l := Load{Size: 64, Conns: 1, Depth: 1}
	noisy := paired(l, 1, 1, 0.95, 1.05, 0.9, 1.1) // 5 %
	for x, want := range map[float64]string{
		1.051: "worse in 0, better in 1, the same in 2",
		1.049: "worse in 0, better in 0, the same in 3",
		0.951: "worse in 0, better in 0, the same in 3",
		0.949: "worse in 1, better in 0, the same in 2",
	} {
		f := run(noisy, noisy, paired(l, 1, x, x, x, x, x))
		var b bytes.Buffer
		f.writeSummary(&b)
		for _, text := range []string{want, "messages/s 5.0 %"} {
			if !strings.Contains(b.String(), text) {
				t.Errorf("%v: no %q in\n%s", x, text, b.String())
			}
		}
	}
}

func TestOneRoundHasNoSpread(t *testing.T) {
	if got := of(1.5, 1.5, 1.5, 1).String(); got != "1.50 (1 round)" {
		t.Error(got)
	}
	if got := fmt.Sprint(of(1.5, 1.4, 1.6, 2)); got != "1.50 (1.40..1.60)" {
		t.Error(got)
	}
}
