package main

import (
	"math/bits"
	"time"
)

// latency counts durations in buckets that are 1/32 of their value wide, so
// that quantiles are right to 3 %. The zero value is empty.
type latency struct {
	n        uint64
	min, max time.Duration
	buckets  [latencyBuckets]uint64
}

const (
	latencyBits    = 5                                 // of a value beside its leading one
	latencyBuckets = (40 - latencyBits) << latencyBits // up to 2^39 ns, nine minutes
)

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<latencyBits {
		return int(v)
	}
	shift := bits.Len64(v) - latencyBits - 1
	return min(shift<<latencyBits+int(v>>shift), latencyBuckets-1)
}

// valueOf is the middle of a bucket.
func valueOf(i int) time.Duration {
	if i < 2<<latencyBits {
		return time.Duration(i)
	}
	shift := i>>latencyBits - 1
	low := uint64(i-shift<<latencyBits) << shift
	return time.Duration(low + 1<<shift/2)
}

func (l *latency) add(d time.Duration) {
	if l.n == 0 || d < l.min {
		l.min = d
	}
	l.max = max(l.max, d)
	l.n++
	l.buckets[bucketOf(d)]++
}

// merge adds what o has counted.
func (l *latency) merge(o *latency) {
	if o.n == 0 {
		return
	}
	if l.n == 0 || o.min < l.min {
		l.min = o.min
	}
	l.max = max(l.max, o.max)
	l.n += o.n
	for i, n := range o.buckets {
		l.buckets[i] += n
	}
}

// quantile is the smallest duration that at least q of all do not exceed; 0 of
// nothing.
func (l *latency) quantile(q float64) time.Duration {
	if l.n == 0 {
		return 0
	}
	rank, seen := uint64(q*float64(l.n)+0.999999), uint64(0)
	for i, n := range l.buckets {
		if seen += n; seen >= max(rank, 1) {
			return min(max(valueOf(i), l.min), l.max)
		}
	}
	return l.max
}
