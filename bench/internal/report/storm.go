package report

import (
	"bytes"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// Storm is what happened when all sessions of a server were cut at once and
// came back, for each way of steering them.
type Storm struct {
	Sessions int           `json:"sessions"`
	Cores    int           `json:"cores"`    // of the server
	Size     int           `json:"size"`     // bytes of payload of the messages that go on meanwhile
	EveryMS  float64       `json:"every_ms"` // a session sends so often, if its last echo has come
	WindowS  float64       `json:"window_s"`
	Base     string        `json:"base"` // what the ratios are relative to
	Results  []StormResult `json:"results"`
}

// StormResult belongs to one way of steering. Samples are in the order of
// their rounds.
type StormResult struct {
	Steer    string            `json:"steer"`
	About    string            `json:"about"`
	Settings map[string]string `json:"settings,omitempty"`
	Samples  []StormSample     `json:"samples"`
	Median   StormSample       `json:"median"` // of each figure by itself
	Ratio    *StormRatios      `json:"ratio,omitempty"`
}

// StormSample is one storm. The window begins with the cut. Latencies are those
// of all messages that were under way at the cut or sent within the window,
// whenever their echo came: a session that is back after the window counts
// with what its message waited. That of a message that was cut off counts from its
// first sending.
type StormSample struct {
	Round          int     `json:"round"`
	Order          int     `json:"order"`   // place within the round
	Moved          float64 `json:"moved"`   // sessions that changed cores
	Hinted         float64 `json:"hinted"`  // reconnects from a port that names a core
	BackMS         float64 `json:"back_ms"` // from the cut to the first echo of the last session
	MedianBackMS   float64 `json:"median_back_ms"`
	MessagesPerS   float64 `json:"messages_per_s"` // echoes that came within the window
	Late           float64 `json:"late"`           // messages whose echo came after it
	P50US          float64 `json:"p50_us"`
	P99US          float64 `json:"p99_us"`
	ServerCPUMS    float64 `json:"server_cpu_ms"` // until all are back and the window is over
	CalmPerS       float64 `json:"calm_messages_per_s"`
	CalmP99US      float64 `json:"calm_p99_us"`
	FailedAttempts float64 `json:"failed_attempts"` // of the sessions to come back
}

// StormRatios compare a way of steering with the base, round by round.
type StormRatios struct {
	Rate Ratio `json:"rate"` // above 1 is better
	P99  Ratio `json:"p99"`  // below 1 is better, as in the following
	Back Ratio `json:"back"`
	CPU  Ratio `json:"server_cpu"`
}

// Compute fills in the medians and ratios.
func (s *Storm) Compute() {
	var base []StormSample
	for i := range s.Results {
		r := &s.Results[i]
		r.Median = stormMedians(r.Samples)
		if r.Steer == s.Base {
			base = r.Samples
		}
	}
	for i := range s.Results {
		r := &s.Results[i]
		r.Ratio = nil
		if r.Steer != s.Base && len(base) > 0 && len(r.Samples) > 0 {
			r.Ratio = &StormRatios{
				Rate: ratio(r.Samples, base, func(s StormSample) float64 { return s.MessagesPerS }),
				P99:  ratio(r.Samples, base, func(s StormSample) float64 { return s.P99US }),
				Back: ratio(r.Samples, base, func(s StormSample) float64 { return s.BackMS }),
				CPU:  ratio(r.Samples, base, func(s StormSample) float64 { return s.ServerCPUMS }),
			}
		}
	}
}

func stormMedians(samples []StormSample) StormSample {
	return medianOf(samples,
		func(s *StormSample) *float64 { return &s.Moved },
		func(s *StormSample) *float64 { return &s.Hinted },
		func(s *StormSample) *float64 { return &s.BackMS },
		func(s *StormSample) *float64 { return &s.MedianBackMS },
		func(s *StormSample) *float64 { return &s.MessagesPerS },
		func(s *StormSample) *float64 { return &s.Late },
		func(s *StormSample) *float64 { return &s.P50US },
		func(s *StormSample) *float64 { return &s.P99US },
		func(s *StormSample) *float64 { return &s.ServerCPUMS },
		func(s *StormSample) *float64 { return &s.CalmPerS },
		func(s *StormSample) *float64 { return &s.CalmP99US },
		func(s *StormSample) *float64 { return &s.FailedAttempts },
	)
}

func (s StormSample) round() int { return s.Round }

// WriteStorm writes the table of the storm, if there was one.
func (f *File) WriteStorm(w io.Writer) error {
	var b bytes.Buffer
	f.writeStorm(&b)
	f.writeNotes(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (f *File) writeStorm(b *bytes.Buffer) {
	s := f.Storm
	if s == nil {
		return
	}
	rounds := 0
	for _, r := range s.Results {
		rounds = max(rounds, len(r.Samples))
	}
	window := quantity.Micros(s.WindowS * 1e6)
	b.WriteByte('\n')
	writeText(b, fmt.Sprintf("%d lossless sessions cut at once, %d cores, %s on each every %s, %s from the cut (%s)",
		s.Sessions, s.Cores, quantity.Bytes(int64(s.Size)), quantity.Micros(s.EveryMS*1e3), window, mediansOf(rounds)), f.width())
	rows := [][]string{{
		"steering", "moved", "hinted", "half back", "all back", "msg/s", "late", "p50", "p99", "server CPU", "calm msg/s", "calm p99",
		"msg/s : " + s.Base, "p99 : " + s.Base, "all back : " + s.Base, "server CPU : " + s.Base,
	}}
	for _, r := range s.Results {
		rows = append(rows, r.row(s.Base))
	}
	writeAligned(b, rows, f.width(), len(rows[0])-4)
	writeText(b, fmt.Sprintf("msg/s: echoes within %s from the cut. late: messages of that time whose echo came after it. "+
		"p50, p99: of both, from the first sending to the echo.", window), f.width())
}

func (r *StormResult) row(base string) []string {
	if len(r.Samples) == 0 {
		return []string{r.Steer, "not measured"}
	}
	m := &r.Median
	row := []string{
		r.Steer, fmt.Sprintf("%.0f", m.Moved), fmt.Sprintf("%.0f", m.Hinted), quantity.Micros(m.MedianBackMS * 1e3), quantity.Micros(m.BackMS * 1e3),
		quantity.Count(m.MessagesPerS), fmt.Sprintf("%.0f", m.Late), quantity.Micros(m.P50US), quantity.Micros(m.P99US), quantity.Micros(m.ServerCPUMS * 1e3), quantity.Count(m.CalmPerS), quantity.Micros(m.CalmP99US),
	}
	switch {
	case r.Steer == base:
		return append(row, "base", "base", "base", "base")
	case r.Ratio == nil:
		return append(row, "-", "-", "-", "-")
	}
	return append(row, r.Ratio.Rate.String(), r.Ratio.P99.String(), r.Ratio.Back.String(), r.Ratio.CPU.String())
}
