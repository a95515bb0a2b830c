package hist

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestEveryValueFallsIntoTheBucketThatContainsIt(t *testing.T) {
	check := func(v int64) {
		t.Helper()
		low, high := bounds(index(v))
		if v < low || v > high {
			t.Fatalf("value %d is in bucket %d..%d", v, low, high)
		}
		if width := high - low; width*sub > max(v, 1) {
			t.Fatalf("bucket %d..%d is too wide for %d", low, high, v)
		}
	}
	for v := int64(0); v < 1<<16; v++ {
		check(v)
	}
	for bit := range maxBits {
		for d := int64(-2); d <= 2; d++ {
			if v := int64(1)<<bit + d; v >= 0 && v < 1<<maxBits {
				check(v)
			}
		}
	}
}

func TestBucketsAreContiguous(t *testing.T) {
	next := int64(0)
	for i := range buckets {
		low, high := bounds(i)
		if low != next || high < low {
			t.Fatalf("bucket %d is %d..%d, want it to start at %d", i, low, high, next)
		}
		next = high + 1
	}
	if next != 1<<maxBits {
		t.Fatalf("buckets end at %d", next)
	}
}

func TestQuantileStaysWithinOneBucketOfTheExactOne(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		var h Histogram
		values := make([]int64, 1+rng.IntN(5000))
		for i := range values {
			values[i] = rng.Int64N(1 << (1 + rng.IntN(maxBits-1)))
			h.Record(time.Duration(values[i]))
		}
		slices.Sort(values)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
			rank := max(int(float64(len(values))*q+0.9999999), 1)
			exact := values[rank-1]
			got := int64(h.Quantile(q))
			if diff := max(got-exact, exact-got); diff*sub > max(exact, sub) {
				t.Fatalf("quantile %v of %d values is %d, exactly %d", q, len(values), got, exact)
			}
		}
	}
}

func TestValuesOutOfRangeAreCountedAtTheEnds(t *testing.T) {
	var h Histogram
	h.Record(-5)
	h.Record(time.Duration(1) << 50)
	if h.Count() != 2 || h.Quantile(0) != 0 || h.Max() != time.Duration(1)<<50 {
		t.Fatalf("count %d, min %d, max %d", h.Count(), h.Quantile(0), h.Max())
	}
}

func TestAnEmptyHistogramHasZeroQuantiles(t *testing.T) {
	var h, o Histogram
	h.Add(&o)
	if h.Quantile(0.99) != 0 || h.Mean() != 0 || h.Max() != 0 {
		t.Fatal("an empty histogram reported something")
	}
}

func TestAddEqualsRecordingBoth(t *testing.T) {
	var a, b, both Histogram
	for i := range 1000 {
		d := time.Duration(i * i)
		both.Record(d)
		if i%3 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	a.Add(&b)
	if a != both {
		t.Fatal("the sum of two histograms differs from one with all values")
	}
}

func TestJSONKeepsEveryQuantile(t *testing.T) {
	var h, back Histogram
	for i := range 100000 {
		h.Record(time.Duration(i * 37))
	}
	p, err := json.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p, &back); err != nil {
		t.Fatal(err)
	}
	for _, q := range []float64{0, 0.5, 0.99, 0.999, 1} {
		if h.Quantile(q) != back.Quantile(q) {
			t.Errorf("quantile %v: %v became %v", q, h.Quantile(q), back.Quantile(q))
		}
	}
	if back.Count() != h.Count() || back.Max() != h.Max() || back.Mean() != h.Mean() {
		t.Error("count, maximum or mean changed")
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Record(12345) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	b.ReportAllocs()
	var h Histogram
	for i := 0; b.Loop(); i++ {
		h.Record(time.Duration(i & 0xfffff))
	}
}
