package main

import (
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

// extendMax bounds the warm-up, until every open request was answered once, and the growth of
// the window for as many replies.
const (
	extendMax   = 5 * time.Second
	quickExtend = 1500 * time.Millisecond
)

// plan divides the time of a run among its cells. When time is short it leaves out the last
// cells: a cell has always enough rounds for a verdict, and slices of a useful length.
type plan struct {
	slice    load.Slice
	servers  int
	now      func() time.Time
	deadline time.Time     // of the run; zero: none
	left     []report.Load // cells not yet begun
	cellEnd  time.Time     // when the share of the current cell is used up
}

// newPlan starts the clock.
func newPlan(o options, now func() time.Time) plan {
	p := plan{
		slice:   load.Slice{Warm: o.warm, WarmMax: extendMax, Window: o.slice, WindowMax: o.slice + extendMax},
		servers: len(o.servers), now: now, left: o.cells(),
	}
	if o.total > 0 {
		p.deadline = now().Add(o.total)
	}
	if o.quick {
		p.slice.WarmMax, p.slice.WindowMax = quickExtend, 2*o.slice
	}
	return p
}

// begin starts the next cell. It returns false if not enough time is left for it.
func (p *plan) begin() bool {
	if p.deadline.IsZero() {
		return true
	}
	left := p.deadline.Sub(p.now())
	// One more round counts system calls.
	if left < (1+report.EnoughRounds)*p.round(p.left[0]) {
		return false
	}
	var sum time.Duration
	for _, l := range p.left {
		sum += p.need(l)
	}
	share := float64(p.need(p.left[0])) / float64(sum)
	p.cellEnd = p.now().Add(time.Duration(float64(left) * share))
	p.left = p.left[1:]
	return true
}

// another reports whether there is time for one more round in this cell, after done rounds, of
// which the last took so long. A cell that is slower than estimated takes the time of enough
// rounds from later cells.
func (p *plan) another(done int, took time.Duration) bool {
	end := p.cellEnd
	if done < report.EnoughRounds {
		end = p.deadline
	}
	return p.deadline.IsZero() || !p.now().Add(took).After(end)
}

// round estimates a round of all servers.
func (p *plan) round(l report.Load) time.Duration { return time.Duration(p.servers) * p.need(l) }

// need estimates a slice: the open requests have to go through once before the window begins,
// at about 1 GB/s, and as much is under way when it ends.
func (p *plan) need(l report.Load) time.Duration {
	open := time.Duration(l.Size) * time.Duration(l.Conns*l.Depth) // at 1 ns per byte
	need := p.slice.Warm + p.slice.Window + min(open, p.slice.WarmMax)
	if l.GCLoad {
		need += 300 * time.Millisecond // two collections around the slice
	}
	return need
}
