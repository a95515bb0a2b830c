package latency

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// digits is the precision: a value is known to 1 %, which is less than two
	// rounds of a benchmark differ by. A third digit would take eight times the
	// memory, and a load has one histogram for each connection.
	digits = 2
	// highest is the largest duration that is told apart from longer ones. With
	// it a histogram takes 35 KiB, whatever is recorded.
	highest = 20 * time.Minute
)

// Histogram is a set of recorded durations, each known to 1 %, from 1 ns to
// 20 minutes. It is made by New and belongs to one goroutine at a time.
type Histogram struct{ h *hdrhistogram.Histogram }

// New returns an empty histogram. Nothing is allocated after that.
func New() *Histogram { return &Histogram{hdrhistogram.New(1, int64(highest), digits)} }

// Record counts one duration. Negative ones count as zero, those above 20
// minutes as 20 minutes.
func (h *Histogram) Record(d time.Duration) {
	_ = h.h.RecordValue(int64(min(max(d, 0), highest))) // fails only out of range
}

// Add counts everything that o has counted.
func (h *Histogram) Add(o *Histogram) { h.h.Merge(o.h) } // both have the same range: nothing is dropped

// Clone returns a histogram of its own with the same durations.
func (h *Histogram) Clone() *Histogram { return &Histogram{h.h.Clone()} }

// Reset forgets everything.
func (h *Histogram) Reset() { h.h.Reset() }

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return uint64(h.h.TotalCount()) }

// Min returns the smallest one; 0 if there are none.
func (h *Histogram) Min() time.Duration { return time.Duration(h.h.Min()) }

// Max returns the largest one; 0 if there are none.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) }

// Quantile returns the duration that the share q (0..1) of all recorded ones
// does not exceed; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtPercentile(q * 100))
}

// MarshalJSON writes the text that HdrHistogram's tools read: its format V2,
// compressed, in base64. Values are nanoseconds.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	text, err := h.h.EncodeV2()
	if err != nil {
		return nil, fmt.Errorf("latency histogram: %w", err)
	}
	return json.Marshal(string(text))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(p []byte) error {
	var text string
	if err := json.Unmarshal(p, &text); err != nil {
		return fmt.Errorf("latency histogram: %w", err)
	}
	read, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		return fmt.Errorf("latency histogram: %w", err)
	}
	h.h = read
	return nil
}
