package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/perf"
)

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
		m, err := perf.ReadMemory(t.pid)
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
