package door

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// A guest makes progress at each step of its handshake, and its place in the lists
// matters only when a guest has to give way. So the guest does not move in the lists at
// once: it reports, without the lock, and the next user of the lists, which holds the
// lock, brings them up to date. The reports are younger than the lists and are taken in
// the order of their times, so the result is the same as if each step had moved its guest.

// reports are the guests that have made progress since the last take.
type reports struct {
	head  atomic.Pointer[Guest] // linked by report.next
	taken []*Guest              // by take; reused, and guarded by the door's lock
}

// report is the progress of one guest.
type report struct {
	at     atomic.Int64 // the time of its last step: since its arrival, in nanoseconds
	listed atomic.Bool  // it is among the reports
	next   *Guest
	seen   time.Duration // at, as take has found it; guarded by the door's lock
}

// add reports a step of g. Any goroutine, but one at a time for each guest.
func (r *reports) add(g *Guest, at time.Duration) {
	g.report.at.Store(int64(at))
	if !g.report.listed.CompareAndSwap(false, true) {
		return // it is listed, and take reads its time later
	}
	for {
		old := r.head.Load()
		g.report.next = old
		if r.head.CompareAndSwap(old, g) {
			return
		}
	}
}

// take empties the reports and returns the guests, the one with the oldest step first.
// The result holds until forget. The door's lock is held.
func (r *reports) take() []*Guest {
	if r.head.Load() == nil {
		return nil
	}
	for g := r.head.Swap(nil); g != nil; {
		next := g.report.next
		g.report.next = nil
		g.report.listed.Store(false) // a step from here on is a new report
		g.report.seen = time.Duration(g.report.at.Load())
		r.taken = append(r.taken, g)
		g = next
	}
	slices.Reverse(r.taken) // reports of one moment in the order in which they came
	slices.SortStableFunc(r.taken, func(a, b *Guest) int {
		return cmp.Compare(a.arrived.Add(a.report.seen).Sub(b.arrived), b.report.seen)
	})
	return r.taken
}

// forget drops the reports that take has returned. The door's lock is held.
func (r *reports) forget() {
	clear(r.taken)
	r.taken = r.taken[:0]
}
