package soak

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// judgeSessions checks the results of the clients.
func (w *world) judgeSessions() {
	for _, s := range w.sessions {
		echoes, err := s.results()
		if err != nil {
			w.t.Error(err)
		}
		if echoes == 0 {
			w.t.Errorf("%s: no echo came", s.who)
		}
	}
	if w.storms.Load() == 0 || w.changes.Load() == 0 || w.acts.Load() == 0 {
		w.t.Errorf("%d storms, %d changes of cores, %d attacks: want some of each",
			w.storms.Load(), w.changes.Load(), w.acts.Load())
	}
}

// awaitStorage goes on until all that can happen to files has happened.
func (w *world) awaitStorage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var now Sample
	err := msgrtest.Until(ctx, func() bool {
		rest(ctx, 50*time.Millisecond)
		var err error
		now, err = w.server.ask(w.t.Context(), Ask{})
		return !w.healthy() || err == nil && w.allPlaces() && now.Held > 0 && now.Reopened > 0 && now.Failed > 0
	})
	if err != nil {
		w.t.Errorf("not everything has happened to files: all places are in use: %v, %+v", w.allPlaces(), now)
	}
}

// allPlaces says that every keeper has read and written everywhere.
func (w *world) allPlaces() bool {
	for _, k := range w.keepers {
		for p := range places {
			if k.reads[p].Load() == 0 || k.writes[p].Load() == 0 {
				return false
			}
		}
	}
	return true
}

// judgeServer waits until the server is as it was before the attacks.
func (w *world) judgeServer(before Sample) {
	ctx, cancel := context.WithTimeout(w.t.Context(), w.plan.settle)
	defer cancel()
	var now Sample
	err := msgrtest.Until(ctx, func() bool {
		rest(ctx, 100*time.Millisecond)
		var err error
		now, err = w.server.ask(w.t.Context(), Ask{Cores: leastCore})
		if err == nil && now.Cores == leastCore {
			now, err = w.server.ask(w.t.Context(), Ask{Collect: true})
		}
		return err == nil && now.Cores == leastCore && now.InFlight == 0 && now.Sending == 0 && now.Ops == 0 &&
			now.Files <= before.Files && now.Goroutines <= before.Goroutines &&
			now.Locked <= before.Locked+lockedSlack && now.Resident <= before.Resident+residentSlack
	})
	if err != nil {
		w.t.Errorf("behind all the server is not as before: %+v, before %+v", now, before)
	}
	if now.Trouble != "" {
		w.t.Error(errors.New(now.Trouble))
	}
	if limit := int64(memoryBound + 64<<20); now.Peak > limit {
		w.t.Errorf("%d bytes were resident, the sum of the bounds and 64 MiB is %d", now.Peak, limit)
	}
	w.t.Logf("server: before %+v\nbehind %+v", before, now)
}

// The memory that the server may have more at the end than before, in bytes: the small buffers
// of a core stay at their high-water mark, and the collector keeps pages for later.
const (
	lockedSlack   = 4 << 20
	residentSlack = 64 << 20
)

// series are the figures that must not grow.
var series = []struct {
	name, unit string
	slack      float64 // by how much the last quarter of a run may exceed the second, beside a tenth
	of         func(s Sample) float64
}{
	{"resident", "MiB", 16, func(s Sample) float64 { return float64(s.Resident) / (1 << 20) }},
	{"heap", "MiB", 8, func(s Sample) float64 { return float64(s.Heap) / (1 << 20) }},
	{"locked", "MiB", 4, func(s Sample) float64 { return float64(s.Locked) / (1 << 20) }},
	{"descriptors", "", 40, func(s Sample) float64 { return float64(s.Files) }},
	{"goroutines", "", 40, func(s Sample) float64 { return float64(s.Goroutines) }},
}

// judgeGrowth compares the last quarter of a long run with the second one. In a short one
// the number of cores decides, which changes at random.
func (w *world) judgeGrowth() {
	if len(w.samples) < 200 {
		return
	}
	q := len(w.samples) / 4
	for _, s := range series {
		early, late := median(w.samples[q:2*q], s.of), median(w.samples[3*q:], s.of)
		w.t.Logf("%s: %.4g %s in the second quarter, %.4g in the last one", s.name, early, s.unit, late)
		if late > early*1.1+s.slack {
			w.t.Errorf("%s grows: %.4g %s in the second quarter, %.4g in the last one", s.name, early, s.unit, late)
		}
	}
}

// median is the middle value, as storms and attacks come and go.
func median(samples []Sample, of func(Sample) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, of(s))
	}
	slices.SortFunc(all, cmp.Compare)
	return all[len(all)/2]
}
