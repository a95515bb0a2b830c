package dataplane

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestEveryDurationIsBelowItsBoundByAQuarterAtMost(t *testing.T) {
	var h Histogram
	for d := time.Duration(1); d < 1<<36; d += d/37 + 1 {
		i := bucketOf(d)
		if above := h.Bound(i); d >= above || d >= 128 && above > d+d/4 {
			t.Fatalf("%d ns is in the bucket below %d", d, above)
		}
		if i > 0 && d < h.Bound(i-1) {
			t.Fatalf("%d ns belongs below %d", d, h.Bound(i-1))
		}
	}
	for _, d := range []time.Duration{1 << 36, 1 << 62} {
		if i := bucketOf(d); i != histogramBuckets-1 || h.Bound(i) != 0 {
			t.Errorf("%v is in bucket %d", d, i)
		}
	}
	h.Add(-time.Second)
	if h.Counts[0] != 1 || h.Sum != 0 {
		t.Errorf("a negative duration: %+v", h)
	}
}

func TestQuantilesAreThoseOfTheSortedDurations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, other Histogram
	var all []time.Duration
	if h.Quantile(0.5) != 0 {
		t.Error("of nothing")
	}
	for i := range 10000 {
		d := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			h.Add(d)
		} else {
			other.Add(d)
		}
	}
	h.merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.1, 0.5, 0.99, 0.999, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		if got := h.Quantile(q); got < want || got > want+want/4+128 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if h.Count() != 10000 {
		t.Errorf("%d samples", h.Count())
	}
}

func TestAHistogramIsTheSameBehindJSON(t *testing.T) {
	var h, back Histogram
	for _, d := range []time.Duration{0, 127, 128, time.Microsecond, time.Microsecond, time.Hour} {
		h.Add(d)
	}
	text, err := json.Marshal(h)
	must(t, err)
	must(t, json.Unmarshal(text, &back))
	if back != h {
		t.Errorf("%s is %+v", text, back)
	}
	if err := json.Unmarshal([]byte(`{"buckets":3}`), &back); err == nil {
		t.Error("nonsense is read")
	}
}

func ExampleHistogram() {
	var h Histogram
	for i := range 100 {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	fmt.Println(h.Count(), h.Quantile(0.5), h.Quantile(0.99))
	// Output: 100 49.152µs 98.304µs
}
