package main

import (
	"context"
	"fmt"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/syscount"
)

// countRound loads every server once and counts its system calls: from
// outside, which treats all alike, or else as the server itself does.
func (r *runner) countRound(ctx context.Context, cell *report.Cell) error {
	for i, t := range r.targets {
		if err := r.count(ctx, t, cell.Load, &cell.Results[i].Syscalls); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// count adds one slice of one server to what was found. What the server does
// for anything but its replies, such as switching the GC load on and off, is
// outside of the count, or is the same few calls for a whole slice.
func (r *runner) count(ctx context.Context, t *target, l report.Load, found *report.Syscalls) error {
	if err := r.uncacheFile(l.What); err != nil {
		return err
	}
	return r.withGCLoad(ctx, t, l, func() error {
		before, err := r.startCount(ctx, t)
		if err != nil {
			return err
		}
		defer before.close()
		s := r.plan.slice
		s.Rate, s.Active = float64(l.Rate), l.Active
		s.WarmMax, s.WindowMax = s.Warm, s.Window // no need to wait for a steady state
		res, err := r.run(ctx, t, s)
		if err != nil {
			return err
		}
		calls, known, err := before.calls(ctx)
		if err != nil {
			return err
		}
		switch {
		case r.counter != nil:
			found.How = "counted by the " + syscount.Method
		case known:
			found.How = "counted by the server itself"
		default:
			found.How = fmt.Sprintf("not known, it does not count them and %v", r.why)
			return nil
		}
		// The count runs from before the first request to behind the last
		// reply, as Total does.
		found.PerMessage = append(found.PerMessage, float64(calls)/float64(res.Total))
		return nil
	})
}

// callCounter counts the system calls of one process.
type callCounter interface {
	// Read returns how many there were since the counter was started.
	Read() (uint64, error)
	Close()
}

// counterFunc starts a counter for a process.
type counterFunc func(pid int) (callCounter, error)

// openCounter finds out whether this process may count the calls of others.
func openCounter() (counterFunc, error) {
	source, err := syscount.Open()
	if err != nil {
		return nil, err
	}
	return func(pid int) (callCounter, error) {
		c, err := source.Start(pid)
		if err != nil {
			return nil, err
		}
		return c, nil
	}, nil
}

// callCount is a count in progress.
type callCount struct {
	r       *runner
	t       *target
	outside callCounter // nil: the server counts, if anybody does
	first   *uint64
}

// startCount begins to count the calls of t.
func (r *runner) startCount(ctx context.Context, t *target) (*callCount, error) {
	c := &callCount{r: r, t: t}
	var err error
	if r.counter != nil {
		c.outside, err = r.counter(t.pid)
		return c, err
	}
	c.first, err = c.ask(ctx)
	return c, err
}

// ask returns the server's own count, nil if it has none.
func (c *callCount) ask(ctx context.Context) (*uint64, error) {
	var stats child.ServerStats
	err := c.r.ask(ctx, c.t.child, child.ServerRequest{}, &stats)
	return stats.Syscalls, err
}

// calls returns how many there were.
func (c *callCount) calls(ctx context.Context) (n uint64, known bool, err error) {
	if c.outside != nil {
		n, err = c.outside.Read()
		return n, true, err
	}
	last, err := c.ask(ctx)
	if err != nil || last == nil || c.first == nil {
		return 0, false, err
	}
	return *last - *c.first, true, nil
}

// close ends the counting.
func (c *callCount) close() {
	if c.outside != nil {
		c.outside.Close()
	}
}
