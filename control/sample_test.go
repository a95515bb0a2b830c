package control_test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// A test of every case that is too long to run each time runs a part of them,
// and another part the next time: the seed of the sample says which. It is the
// time, or RINGMSGR_SAMPLE; as many seeds in a row as the stride has run all.

// sampleSeed is the seed of this process.
var sampleSeed = uint64(time.Now().Unix())

func seedOfSample(t testing.TB) uint64 {
	t.Helper()
	s := os.Getenv("RINGMSGR_SAMPLE")
	if s == "" {
		return sampleSeed
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("RINGMSGR_SAMPLE: %v", err)
	}
	return seed
}

// sampleOf keeps one of stride, all with RINGMSGR_LONG. A stride that has no
// factor in common with the sizes of a product meets every part of it.
func sampleOf[T any](t testing.TB, all []T, stride int) []T {
	t.Helper()
	return sampleAt(t, all, stride, seedOfSample(t))
}

// sampleAt is sampleOf with a seed of its own, for a sample of a sample.
func sampleAt[T any](t testing.TB, all []T, stride int, seed uint64) []T {
	t.Helper()
	if os.Getenv("RINGMSGR_LONG") != "" {
		t.Logf("RINGMSGR_SAMPLE=%d: all %d cases", seedOfSample(t), len(all))
		return all
	}
	var out []T
	first := int(seed % uint64(min(stride, max(len(all), 1))))
	for i := first; i < len(all); i += stride {
		out = append(out, all[i])
	}
	t.Logf("RINGMSGR_SAMPLE=%d: %d of %d cases, one of %d from number %d on", seedOfSample(t), len(out), len(all), stride, first)
	return out
}

func TestSuccessiveSamplesCoverEverything(t *testing.T) {
	t.Setenv("RINGMSGR_LONG", "")
	for _, size := range []int{1, 7, 28, 29, 1000} {
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		const stride = 29
		met := make(map[int]int)
		for seed := uint64(1_000_000); seed < 1_000_000+stride; seed++ {
			t.Setenv("RINGMSGR_SAMPLE", strconv.FormatUint(seed, 10))
			some := sampleOf(t, all, stride)
			if len(some) < size/stride || len(some) == 0 {
				t.Errorf("seed %d has %d of %d cases", seed, len(some), size)
			}
			for _, i := range some {
				met[i]++
			}
		}
		if len(met) != size {
			t.Errorf("%d of %d cases in %d runs", len(met), size, stride)
		}
	}
}
