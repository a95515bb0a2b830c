// Package hist counts durations in a log-linear histogram: every power of two
// is cut into 64 equal buckets, so that a quantile is off by less than 1.6 %
// whatever its size, and recording is a handful of instructions without any
// allocation. It is not safe for concurrent use.
package hist

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	subBits = 6
	sub     = 1 << subBits
	maxBits = 40 // values from 2^40 ns (18 minutes) on share the last bucket
	buckets = (maxBits-subBits)*sub + sub
)

// Histogram is a set of recorded durations. The zero value is empty and ready
// to use.
type Histogram struct {
	counts   [buckets]uint64
	n        uint64
	sum      float64
	min, max int64
}

// index returns the bucket of v: values below 2*sub have one each.
func index(v int64) int {
	if v < 0 {
		v = 0
	}
	if v >= 1<<maxBits {
		return buckets - 1
	}
	shift := bits.Len64(uint64(v)) - 1 - subBits
	if shift < 0 {
		shift = 0
	}
	return shift<<subBits + int(v>>shift)
}

// bounds returns the smallest and the largest value of bucket i.
func bounds(i int) (low, high int64) {
	if i < 2*sub {
		return int64(i), int64(i)
	}
	shift := i>>subBits - 1
	m := int64(i - shift<<subBits)
	return m << shift, (m+1)<<shift - 1
}

// Record counts one duration. Negative ones count as zero.
func (h *Histogram) Record(d time.Duration) {
	v := max(int64(d), 0)
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.n++
	h.sum += float64(v)
	h.counts[index(v)]++
}

// Add counts everything that o has counted.
func (h *Histogram) Add(o *Histogram) {
	if o.n == 0 {
		return
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
	for i, c := range o.counts {
		h.counts[i] += c
	}
}

// Reset forgets everything.
func (h *Histogram) Reset() { *h = Histogram{} }

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the largest one, exactly.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Mean returns their mean, or 0 if there are none.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile returns the smallest duration that at least the share q (0..1) of
// all recorded ones does not exceed, up to the width of its bucket; 0 if there
// are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(h.n)))
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, c := range h.counts {
		seen += c
		if seen >= rank {
			low, high := bounds(i)
			return time.Duration(min(max((low+high)/2, h.min), h.max))
		}
	}
	return time.Duration(h.max)
}

// wire is the JSON form. Buckets are pairs of the smallest value and the
// count, in ascending order, empty ones left out.
type wire struct {
	MinNS   int64       `json:"min_ns"`
	MaxNS   int64       `json:"max_ns"`
	MeanNS  float64     `json:"mean_ns"`
	Buckets [][2]uint64 `json:"buckets"`
}

// MarshalJSON writes the buckets that are not empty.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	w := wire{MinNS: h.min, MaxNS: h.max, Buckets: [][2]uint64{}}
	if h.n > 0 {
		w.MeanNS = h.sum / float64(h.n)
	}
	for i, c := range h.counts {
		if c > 0 {
			low, _ := bounds(i)
			w.Buckets = append(w.Buckets, [2]uint64{uint64(low), c})
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(p []byte) error {
	var w wire
	if err := json.Unmarshal(p, &w); err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	h.Reset()
	h.min, h.max = w.MinNS, w.MaxNS
	for _, b := range w.Buckets {
		if b[0] > math.MaxInt64 {
			return fmt.Errorf("histogram: bucket at %d is out of range", b[0])
		}
		h.counts[index(int64(b[0]))] += b[1]
		h.n += b[1]
	}
	h.sum = w.MeanNS * float64(h.n)
	return nil
}
