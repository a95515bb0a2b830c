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
		{of(0.5, 0.5, 0.5, 1), 0, Unknown},           // one round proves nothing
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
	return &File{Base: "theirs", Subject: "ours", Rival: "theirs", Servers: []Server{{Name: "theirs"}, {Name: "ours"}}, Cells: cells}
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

// The same threshold decides in the summary and in the conclusion, and the text
// names it.
func TestOneThresholdIsUsedEverywhere(t *testing.T) {
	l := Load{Size: 64, Conns: 1, Depth: 1}
	noisy := paired(l, 1, 1, 0.95, 1.05, 0.9, 1.1) // 5 %
	for x, want := range map[float64][2]string{
		1.051: {"worse in 0, better in 1, the same in 2", "faster than theirs in 1 of 3"},
		1.049: {"worse in 0, better in 0, the same in 3", "faster than theirs in none"},
		0.951: {"worse in 0, better in 0, the same in 3", "slower in none; 3 are within noise"},
		0.949: {"worse in 1, better in 0, the same in 2", "slower in 1: down to 0.95"},
	} {
		f := run(noisy, noisy, paired(l, 1, x, x, x, x, x))
		var b bytes.Buffer
		f.writeSummary(&b)
		f.writeConclusion(&b)
		for _, text := range append(want[:], "messages/s 5.0 %", "are within noise (5 %)") {
			if !strings.Contains(b.String(), text) {
				t.Errorf("%v: no %q in\n%s", x, text, b.String())
			}
		}
	}
}

func TestTheConclusionIsThreeLinesThatSayWhatToTake(t *testing.T) {
	up, down, same := []float64{1.4, 1.386, 1.414, 1.3, 1.5}, []float64{0.7, 0.693, 0.707, 0.6, 0.8}, []float64{1, 0.99, 1.01, 0.9, 1.1}
	load := func(size, conns int) Load { return Load{Size: size, Conns: conns, Depth: 1} }
	for name, c := range map[string]struct {
		cells []Cell
		want  []string
	}{
		"by size": {
			[]Cell{paired(load(64, 64), 0.8, up...), paired(load(4096, 64), 0.9, same...), paired(load(1<<20, 64), 1.2, down...)},
			[]string{
				"ours is faster than theirs in 1 of 3 loads: up to 1.40 times (64 B, 64 connections).",
				"It is slower in 1: down to 0.70 times (1 MiB, 64 connections); 1 are within noise (1 %).",
				"On this machine take ours up to 64 B, else theirs; ours needs 0.90 of theirs's CPU.",
			},
		},
		"by connections": {
			[]Cell{paired(load(64, 64), 1, up...), paired(load(4096, 1), 1, down...), paired(load(64, 1), 1, down...)},
			[]string{"in 1 of 3 loads", "in 2: down to 0.70", "On this machine take ours from 64 connections on, else theirs;"},
		},
		"by nothing": {
			[]Cell{paired(load(64, 64), 1, up...), paired(load(64, 1), 1, down...), paired(load(4096, 1), 1, up...), paired(load(4096, 64), 1, down...)},
			[]string{"in 2 of 4 loads", "in 2: down to 0.70", "On this machine look for a load like yours above;"},
		},
		"always": {
			[]Cell{paired(load(64, 64), 1, up...)},
			[]string{"in 1 of 1 loads", "It is slower in none; 0", "On this machine take ours for loads like these;"},
		},
		"never": {
			[]Cell{paired(load(64, 64), 1, down...)},
			[]string{"in none of 1 loads.", "It is slower in 1:", "On this machine take theirs for loads like these;"},
		},
		"a busy machine": {
			[]Cell{paired(load(64, 64), 1, 2, 2.8, 1.4, 1.3, 3.1)},
			[]string{"in 1 of 1 loads", "It is slower in none;", "Something else uses this machine: rounds of the same load differ too much. Run it again"},
		},
		"no difference": {
			[]Cell{paired(load(64, 64), 1, same...)},
			[]string{"in none of 1 loads.", "It is slower in none; 1", "On this machine take either for loads like these;"},
		},
	} {
		var b bytes.Buffer
		f := run(c.cells...)
		f.Width = 120
		f.writeConclusion(&b)
		lines := strings.Split(strings.Trim(b.String(), "\n"), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%s: %d lines\n%s", name, len(lines), b.String())
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: %q, want %q", name, lines[i], want)
			}
		}
	}
	var b bytes.Buffer
	run(paired(load(64, 1), 1, up[:4]...)).writeConclusion(&b)
	if !strings.Contains(b.String(), "Too few rounds") {
		t.Errorf("four rounds are judged: %s", b.String())
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
