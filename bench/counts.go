package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// countRound loads every server once and counts its system calls: from
// outside, which treats all alike, or else as the server itself does.
func (r *runner) countRound(ctx context.Context, cell *report.Cell) error {
	for i, t := range r.in(cell.Load) {
		for range 10 { // more often than one hangs in a row
			restarts := r.restarts
			if err := r.count(ctx, t, cell.Load, &cell.Results[i].Syscalls); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if r.restarts == restarts {
				break // else the calls of a client that had to be started again were counted, too
			}
			cell.Results[i].Syscalls.PerMessage = nil
		}
	}
	return nil
}

// count adds one slice of one server to found. Other work of the server, for example switching
// the GC load on and off, is outside of the count, or is the same few calls for a whole slice.
func (r *runner) count(ctx context.Context, t *target, l report.Load, found *report.Syscalls) error {
	if err := r.cacheFile(l.What, true); err != nil {
		return err
	}
	return r.withGCLoad(ctx, t, l, func() error {
		calls, end, err := r.startCount(ctx, t)
		if err != nil {
			return err
		}
		defer end()
		s := r.plan.slice
		s.Rate, s.Active = float64(l.Rate), l.Active
		s.WarmMax, s.WindowMax = s.Warm, s.Window // no need to wait for a steady state
		res, err := r.run(ctx, t, s)
		if err != nil {
			return err
		}
		if calls == nil {
			return nil // no counter
		}
		n, err := calls()
		if t.fills() && err == nil {
			both := n
			s.Window, s.WindowMax = 0, 0
			fill, failure := r.run(ctx, t, s)
			if n, err = calls(); failure == nil && err == nil {
				found.PerMessage = append(found.PerMessage, (float64(both)-float64(n-both))/float64(res.Total-fill.Total))
			}
			return errors.Join(failure, err)
		}
		// The count covers the time from the first request to the last reply, like Total.
		found.PerMessage = append(found.PerMessage, float64(n)/float64(res.Total))
		return err
	})
}

// startCount begins to count the calls of t, by the kernel or by the server itself. calls
// returns their number; it is nil without a counter.
func (r *runner) startCount(ctx context.Context, t *target) (calls func() (uint64, error), end func(), err error) {
	if r.counter != nil {
		c, err := r.counter(t.compared())
		if err != nil {
			return nil, nil, err
		}
		return c.Read, c.Close, nil
	}
	own := func() (n int64, err error) {
		err = r.ask(ctx, t.child, "Syscalls", struct{}{}, &n)
		return n, err
	}
	end = func() {}
	first, err := own()
	if err != nil || first == child.NotCounted {
		return nil, end, err
	}
	return func() (uint64, error) {
		last, err := own()
		return uint64(last - first), err
	}, end, nil
}

// callCounter counts the system calls of one process.
type callCounter interface {
	// Read returns the number of calls since the counter was started.
	Read() (uint64, error)
	Close()
}

const (
	// memoryFrom is the least number of connections by which memory is divided: with fewer, the
	// heap of the process hides them.
	memoryFrom = 100
	// settle is the time for a server to end the work of handshakes.
	settle = time.Second
	// descriptorReserve is the number of descriptors of a process beside its connections.
	descriptorReserve = 100
	// openEach bounds the opening of a connection among many.
	openEach = 5 * time.Millisecond
)

// errDescriptors says that the system allows too few.
var errDescriptors = errors.New("too few descriptors")

// enoughDescriptors says whether a process may have so many connections. A server and, with
// --growth, its client are processes of their own, which raise their limit to the hard one.
func enoughDescriptors(conns int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of descriptors: %w", err)
	}
	if need := uint64(conns + descriptorReserve); limit.Max < need {
		return fmt.Errorf("%w: %d connections take %d in each process, and the hard limit is %d: raise that (ulimit -Hn), or ask for fewer",
			errDescriptors, conns, need, limit.Max)
	}
	return nil
}

// weighs says whether the memory of the connections of a load is measured.
func (r *runner) weighs(l report.Load) bool { return r.opt.growth && l.Conns >= memoryFrom }

// memoryAtRest has all servers give back memory that they do not need, and returns the resident
// memory of each, in bytes.
func (r *runner) memoryAtRest(ctx context.Context) ([]int64, error) {
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	for _, t := range r.targets {
		if err := r.ask(ctx, t.child, "Trim", struct{}{}, nil); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, settle/4); err != nil {
		return nil, err
	}
	all := make([]int64, len(r.targets))
	for i, t := range r.targets {
		m, err := cli.ReadMemory(t.pid)
		if err != nil {
			return nil, err
		}
		all[i] = m.Resident
	}
	return all, nil
}

// weigh notes the memory of each connection of a cell: the memory at rest with all of them
// open, less the memory at rest before the first one was open.
func weigh(cell *report.Cell, before, open []int64) {
	for i := range cell.Results {
		cell.Results[i].BytesPerConn = (open[i] - before[i]) / int64(cell.Load.Conns)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
