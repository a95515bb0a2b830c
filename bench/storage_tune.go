package main

import (
	"context"
	"slices"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

// storageProcs are the values of GOMAXPROCS that are tried, as far as they are more than
// there are CPUs.
func storageProcs(cpus int) []int {
	all := []int{cpus}
	for _, n := range []int{4, 8, 18, 34} {
		if n > cpus {
			all = append(all, n)
		}
	}
	return all
}

// tuning is whose GOMAXPROCS is looked for: cells that differ in the size of their requests
// alone are neighbours.
type tuning struct {
	server, what, how string
	conns, depth      int
}

// tune finds the GOMAXPROCS of the most requests/s, and leaves the server at it. It begins at
// what was found in a neighbour of the cell, if there was one.
func (s *storageRun) tune(ctx context.Context, r *report.StorageResult, p prepared, c *report.StorageCell) (err error) {
	slice := s.plan.slice
	slice.Window /= 2
	slice.WarmMax, slice.WindowMax = slice.Warm, slice.Window
	key := tuning{p.name, c.What, c.How, c.Load.Conns, c.Load.Depth}
	r.Procs, r.Tried, err = climb(storageProcs(s.file.Machine.Cores), s.best[key], func(n int) (float64, error) {
		if err := s.ask(ctx, p.child, storageRequest{Procs: n}, nil); err != nil {
			return 0, err
		}
		res, err := s.slice(ctx, p, slice)
		if err != nil {
			return 0, err
		}
		return float64(res.Bytes) / float64(res.PerReply) / res.Window.Seconds(), nil
	})
	if err != nil {
		return err
	}
	s.best[key] = r.Procs
	return s.ask(ctx, p.child, storageRequest{Procs: r.Procs}, nil)
}

// climb finds the one of ordered values for which try says the most. It tries all of them if
// from is none of them, else that and the two beside it, and goes on in a direction as long as
// it becomes better.
func climb(values []int, from int, try func(n int) (float64, error)) (best int, tried map[int]float64, err error) {
	tried = map[int]float64{}
	better := func(n int) (bool, error) {
		rate, err := try(n)
		if err != nil {
			return false, err
		}
		tried[n] = rate
		if len(tried) > 1 && rate <= tried[best] {
			return false, nil
		}
		best = n
		return true, nil
	}
	start := slices.Index(values, from)
	if start < 0 {
		for _, n := range values {
			if _, err := better(n); err != nil {
				return 0, nil, err
			}
		}
		return best, tried, nil
	}
	if _, err := better(from); err != nil {
		return 0, nil, err
	}
	for _, step := range []int{1, -1} {
		for i := start + step; i >= 0 && i < len(values); i += step {
			on, err := better(values[i])
			if err != nil {
				return 0, nil, err
			}
			if !on {
				break
			}
		}
	}
	return best, tried, nil
}
