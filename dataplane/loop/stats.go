package loop

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// CoreStats are the counters of one core since its start.
type CoreStats struct {
	Core    int    `json:"core"`
	Backend string `json:"backend"`
	Receive string `json:"receive"` // receive mode of its connections; auto: each has its own
	// ReceiveWhy is why it is that mode.
	ReceiveWhy string `json:"receive_why"`
	State      string `json:"state"` // running, draining, failed or stopped

	// CPU is the time that the core's thread has spent on a CPU, in the kernel included:
	// CLOCK_THREAD_CPUTIME_ID. Threads of the kernel that work for a ring are not in it.
	CPU          time.Duration `json:"cpu_ns"`
	Turns        uint64        `json:"turns"`
	SpinHits     uint64        `json:"spin_hits"`   // polls that found work
	SpinMisses   uint64        `json:"spin_misses"` // polls that ended in sleep
	Accepts      uint64        `json:"accepts"`
	AcceptErrors uint64        `json:"accept_errors"`
	Refused      uint64        `json:"refused"`       // accepted connections that were closed at once
	AcceptPauses uint64        `json:"accept_pauses"` // times that a listener paused, as it refused many
	Sockets      int64         `json:"sockets"`       // open now
	Handlers     int64         `json:"handlers"`      // sockets that a framer has now
	LinkCalls    uint64        `json:"link_calls"`    // times that a handshake waited for the core
	FramesIn     uint64        `json:"frames_in"`     // as framers have reported them
	AcksIn       uint64        `json:"acks_in"`       // of these, acknowledgements, as far as framers count them
	BytesIn      uint64        `json:"bytes_in"`
	BytesOut     uint64        `json:"bytes_out"`
	Reads        uint64        `json:"reads"`  // direct reads that brought bytes
	Writes       uint64        `json:"writes"` // gathered writes
	Rearms       uint64        `json:"rearms"` // multishot operations armed again
	// Receiving are the sockets that receive into the ring's buffers now, Receives how
	// often bytes came that way. With ReceiveAuto, TookBuffers and LeftBuffers are the
	// times that a socket began with it, and went back to readiness.
	Receiving   int64  `json:"receiving"`
	Receives    uint64 `json:"receives"`
	TookBuffers uint64 `json:"took_buffers"`
	LeftBuffers uint64 `json:"left_buffers"`
	Paused      uint64 `json:"paused"` // times a throttle stopped a reader
	Stray       uint64 `json:"stray"`  // completions of sockets that have ended
	PoolInUse   int64  `json:"pool_in_use"`
	PoolKept    int64  `json:"pool_kept"`
	PoolLent    uint64 `json:"pool_lent"` // buffers that were asked for
	Load        int64  `json:"load"`      // connections that it owns, open or not
	// Stalls are the times that the core was found standing still with work.
	// While it is Stalled, nothing but Core, State, Stalls, Turns, CPU and Load is known.
	// The same holds for a core that has Failed: the error of its driver.
	Stalls  uint64 `json:"stalls"`
	Stalled bool   `json:"stalled,omitempty"`
	Failed  string `json:"failed,omitempty"`

	Files FileStats `json:"files"`

	Driver uring.Stats `json:"driver"`
}

// FileStats counts the requests on files of one core.
type FileStats struct {
	Open         int64  `json:"open"`        // files, now
	Ops          int64  `json:"ops"`         // requests that have not ended, now
	Waiting      int64  `json:"waiting"`     // of these, requests that wait for their turn
	Uncommitted  int64  `json:"uncommitted"` // of these, requests that no sync covers yet
	Held         int64  `json:"held"`        // bytes of buffers that reads hold, now (Config.FileBytes)
	Reads        uint64 `json:"reads"`
	Writes       uint64 `json:"writes"`
	BytesRead    uint64 `json:"bytes_read"`
	BytesWritten uint64 `json:"bytes_written"`
	Syncs        uint64 `json:"syncs"`    // group commits
	Commits      uint64 `json:"commits"`  // requests that these syncs have made durable
	Errors       uint64 `json:"errors"`   // requests that failed
	Poisoned     uint64 `json:"poisoned"` // files of which a sync has failed
}

// Counts are the counters of the core itself. A framer may count AcksIn. On the core.
func (c *Core) Counts() *CoreStats {
	c.assertOwner()
	return &c.stats
}

// Snapshot returns the present counters. On the core.
func (c *Core) Snapshot() CoreStats {
	c.assertOwner()
	st := c.stats
	st.Core, st.Backend, st.Receive, st.ReceiveWhy = c.id, string(c.info.Backend), string(c.receive), string(c.receiveWhy)
	st.PoolInUse, st.PoolKept, st.PoolLent = c.pool.inUse, c.pool.kept, c.pool.calls
	st.CPU = c.cpu()
	st.Files.Held = c.reads.used
	st.Driver = c.drv.Stats()
	return st
}

// cpu is the CPU time of the core's thread, 0 without one of its own. Any goroutine.
func (c *Core) cpu() time.Duration {
	tid := c.tid.Load()
	if tid == 0 || c.cfg.Stepped != nil {
		return 0
	}
	const perThread, scheduled = 4, 2 // of a clock's number: CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED
	var at unix.Timespec
	if err := unix.ClockGettime(^tid<<3|perThread|scheduled, &at); err != nil {
		return 0 // the thread has just ended
	}
	return time.Duration(at.Nano())
}

// Stats returns the counters of the core. It waits for the core's next turn, but not
// for that of a stalled core. On a core it fails with ErrOnCore; use Snapshot there. For
// a core that has stopped it returns the last counters, with ErrStopped.
func (c *Core) Stats() (CoreStats, error) {
	st, _, err := StatsAnd(c, func(*Core) struct{} { return struct{}{} })
	return st, err
}

// StatsAnd is Stats together with the result of f in the same turn. After the end of the core
// f runs on the goroutine of the caller, beside late tasks; for a stalled core f is not called.
func StatsAnd[T any](c *Core, f func(c *Core) T) (st CoreStats, more T, err error) {
	type both struct {
		st   CoreStats
		more T
	}
	got, err := Ask(c, func(c *Core) both { return both{c.Snapshot(), f(c)} })
	if errors.Is(err, ErrStopped) && (c.cfg.Stepped == nil || c.closed.Load()) { // one that is stepped fails without an end
		<-c.done // it is on its way
		got.st = c.last
		c.afterEnd.Lock()
		got.more = f(c)
		c.afterEnd.Unlock()
	}
	st = got.st
	st.Load, st.Stalls, st.State = c.load.Load(), c.vitals.stalls.Load(), c.State().String()
	failure := c.vitals.failure.Load()
	if failure != nil {
		st.Failed = *failure
	}
	if stalled := errors.Is(err, ErrStalled); stalled || errors.Is(err, ErrStopped) && failure != nil {
		st.Core, st.Backend, st.Receive, st.ReceiveWhy = c.id, string(c.info.Backend), string(c.receive), string(c.receiveWhy)
		st.Turns, st.Stalled, err = c.vitals.turns.Load(), stalled, nil
		if stalled {
			st.CPU = c.cpu()
		}
	}
	return st, got.more, err
}
