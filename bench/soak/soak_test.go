package soak

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var pace = flag.Float64("soak.pace", 1, "pauses are so many times as `long`, for a machine that others use")

// slower is a pause at the pace of the run.
func slower(d time.Duration) time.Duration { return time.Duration(float64(d) * *pace) }

// patience bounds each wait.
const patience = time.Minute

// plan has the length of a run, and the intervals of its events.
type plan struct {
	length time.Duration
	window time.Duration // between two samples
	storm  time.Duration
	cores  time.Duration // between two changes of the number of cores
	settle time.Duration // without attackers, before they come
}

func planned(t *testing.T) plan {
	long := os.Getenv("RINGMSGR_LONG")
	if long == "" {
		return plan{6 * time.Second, time.Second, 1500 * time.Millisecond, 700 * time.Millisecond, 10 * time.Second}
	}
	d, err := time.ParseDuration(long)
	if err != nil {
		t.Fatalf("RINGMSGR_LONG: %v", err)
	}
	return plan{d, max(d/240, time.Second), 20 * time.Second, 5 * time.Second, 30 * time.Second}
}

// world is everything that runs.
type world struct {
	t        *testing.T
	plan     plan
	server   *process
	proxies  [2]*hostileProxy // of msgr2, of msgr1
	sessions []*session
	keepers  []*keeper
	acts     atomic.Int64
	storms   atomic.Int64
	changes  atomic.Int64 // cores that came or went
	samples  []Sample
}

// Everything at once: no message is lost, doubled or overtaken, and nothing grows.
// Matrix: FT-32, V1-11, ST-11, INV-01, INV-07, INV-11
func TestNothingGrowsAndNothingIsLostWithEverythingAtOnce(t *testing.T) {
	w := &world{t: t, plan: planned(t)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.server = startServer(ctx, t, t.TempDir())
	defer w.server.Stop()
	w.open()

	var senders, others sync.WaitGroup
	sending, stopSending := context.WithCancel(ctx)
	defer stopSending()
	for _, s := range w.sessions {
		senders.Go(func() { s.run(sending) })
	}
	began := time.Now()
	for n, k := range w.keepers {
		senders.Go(func() { k.run(sending, n, began) })
	}
	// Without steering a core that goes leaves its listening socket to the others:
	// there are as many as there ever were cores.
	w.become(ctx, mostCores)
	w.become(ctx, leastCore)
	w.during(w.plan.settle/10, nil) // all are connected
	before := w.baseline(ctx)

	hostile, stopHostile := context.WithCancel(ctx)
	defer stopHostile()
	attackAll(hostile, &others, w.server.addr, &w.acts)
	w.disturb(hostile, &others)
	w.during(w.plan.length, w.sample)
	w.awaitStorage(ctx)
	stopHostile()
	others.Wait()
	w.proxies[0].calm.Store(true)
	w.proxies[1].calm.Store(true)
	stopSending()
	senders.Wait()

	w.judgeSessions()
	w.judgeServer(before)
	w.judgeGrowth()
	for _, k := range w.keepers {
		if err := errors.Join(k.trouble(), k.close()); err != nil {
			t.Error(err)
		}
	}
	for _, s := range w.sessions {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// open makes all sessions, and the keepers.
func (w *world) open() {
	for i, to := range []wire.Addr{w.server.addr, w.server.msgr1} {
		w.proxies[i] = newHostileProxy(w.t, to.AddrPort, 0, 4<<20, 2*time.Second)
	}
	for j, k := range kinds {
		for n := range k.number {
			to, proxy := w.server.addr, w.proxies[0]
			if k.msgr1 {
				to, proxy = w.server.msgr1, w.proxies[1]
			}
			var through netip.AddrPort
			if k.proxy {
				through = proxy.addr()
			}
			w.sessions = append(w.sessions, openSession(w.t, k, 1+10*j+n, to, through))
		}
	}
	for n := range keepers {
		var through netip.AddrPort
		if n%2 == 0 {
			through = w.proxies[0].addr()
		}
		w.keepers = append(w.keepers, openKeeper(w.t, n, w.server.addr, through))
	}
}

// during calls what in every window until the time is over, or a session fails.
func (w *world) during(length time.Duration, what func()) {
	end := time.NewTimer(length)
	defer end.Stop()
	tick := time.NewTicker(min(w.plan.window, length))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if what != nil {
				what()
			}
			if !w.healthy() {
				return // it says why in the end
			}
		case <-end.C:
			return
		}
	}
}

// sample looks at the server, and says in a long run how far it is.
func (w *world) sample() {
	s, err := w.server.ask(w.t.Context(), Ask{})
	if err != nil {
		w.t.Error(err)
		return
	}
	w.samples = append(w.samples, s)
	if len(w.samples)%10 == 0 {
		w.t.Logf("%d attacks, %d storms; %+v", w.acts.Load(), w.storms.Load(), s)
	}
}

func (w *world) healthy() bool {
	return !slices.ContainsFunc(w.sessions, func(s *session) bool { return s.trouble() != nil }) &&
		!slices.ContainsFunc(w.keepers, func(k *keeper) bool { return k.trouble() != nil })
}

// disturb starts the storms and the changes of cores.
func (w *world) disturb(ctx context.Context, wg *sync.WaitGroup) {
	every := func(d time.Duration, count *atomic.Int64, what func() error) {
		wg.Go(func() {
			for rest(ctx, d); ctx.Err() == nil; rest(ctx, d) {
				if err := what(); err != nil {
					w.t.Error(err)
					return
				}
				count.Add(1)
			}
		})
	}
	every(w.plan.storm, &w.storms, func() error {
		w.proxies[0].cutAll()
		w.proxies[1].cutAll()
		return nil
	})
	rng := rand.New(rand.NewPCG(3, 5))
	every(w.plan.cores, &w.changes, func() error {
		now, err := w.server.ask(w.t.Context(), Ask{Cores: leastCore + rng.IntN(mostCores-leastCore+1)})
		if now.Trouble != "" {
			err = errors.New(now.Trouble)
		}
		return err
	})
}

// become waits until the server has so many cores.
func (w *world) become(ctx context.Context, cores int) {
	for {
		s, err := w.server.ask(ctx, Ask{Cores: cores})
		if err != nil || s.Trouble != "" {
			w.t.Fatal(err, s.Trouble)
		}
		if s.Cores == cores {
			return
		}
		rest(ctx, 20*time.Millisecond)
	}
}

// baseline are the highest figures of the server without attacks: with all sessions connected
// at once.
func (w *world) baseline(ctx context.Context) Sample {
	var most Sample
	for n, all := 0, 0; n < 20 || all == 0; n++ {
		s, err := w.server.ask(ctx, Ask{Collect: true})
		if err != nil {
			w.t.Fatalf("the server, after %d samples of which %d have all sessions: %v", n, all, err)
		}
		if s.Ready == len(w.sessions)+len(w.keepers) {
			all++
		}
		s.Files, s.Goroutines = max(s.Files, most.Files), max(s.Goroutines, most.Goroutines)
		s.Resident, s.Locked = max(s.Resident, most.Resident), max(s.Locked, most.Locked)
		most = s
		rest(ctx, w.plan.settle/200)
	}
	return most
}

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
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
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

// The memory that the server may have more at the end than before, in bytes: a core keeps 4 MiB
// of small buffers, and the collector keeps pages for later.
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
	return report.Median(all)
}
