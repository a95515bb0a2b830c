package main

import (
	"errors"
	"maps"
	"slices"
	"testing"
)

func TestTheBestValueIsLookedForFromThatOfANeighbour(t *testing.T) {
	values := []int{2, 4, 8, 18, 34}
	for name, c := range map[string]struct {
		from  int
		rates []float64 // of each value
		best  int
		tried []int
	}{
		"nothing is known":                 {0, []float64{5, 9, 3, 2, 7}, 4, values},
		"the last one, too":                {0, []float64{5, 4, 3, 2, 7}, 34, values},
		"another machine":                  {6, []float64{5, 9, 3, 2, 7}, 4, values},
		"it is the best still":             {8, []float64{9, 5, 7, 6, 9}, 8, []int{4, 8, 18}},
		"more are better":                  {4, []float64{1, 2, 3, 4, 5}, 34, []int{2, 4, 8, 18, 34}},
		"more are better up to a point":    {4, []float64{1, 2, 3, 1, 9}, 8, []int{2, 4, 8, 18}},
		"fewer are better":                 {18, []float64{1, 3, 2, 1, 0}, 4, []int{2, 4, 8, 18, 34}},
		"as many are no better":            {8, []float64{9, 5, 5, 5, 9}, 8, []int{4, 8, 18}},
		"at the end":                       {34, []float64{9, 9, 9, 1, 2}, 34, []int{18, 34}},
		"at the beginning":                 {2, []float64{2, 1, 9, 9, 9}, 2, []int{2, 4}},
		"both sides are better, one more":  {8, []float64{1, 7, 5, 6, 1}, 4, []int{2, 4, 8, 18, 34}},
		"both sides are better, the other": {8, []float64{9, 6, 5, 7, 1}, 18, []int{4, 8, 18, 34}},
	} {
		best, tried, err := climb(values, c.from, func(n int) (float64, error) { return c.rates[slices.Index(values, n)], nil })
		if got := slices.Sorted(maps.Keys(tried)); err != nil || best != c.best || !slices.Equal(got, c.tried) {
			t.Errorf("%s: %d is the best of %v, %v, want %d of %v", name, best, got, err, c.best, c.tried)
		}
		for n, rate := range tried {
			if rate != c.rates[slices.Index(values, n)] {
				t.Errorf("%s: %v", name, tried)
			}
		}
	}
	for failing := range 3 { // calls
		for _, from := range []int{0, 8} {
			gone, calls := errors.New("gone"), 0
			if _, _, err := climb(values, from, func(int) (float64, error) {
				if calls++; calls > failing {
					return 0, gone
				}
				return float64(calls), nil
			}); !errors.Is(err, gone) {
				t.Errorf("from %d, %d calls succeed: %v", from, failing, err)
			}
		}
	}
}
