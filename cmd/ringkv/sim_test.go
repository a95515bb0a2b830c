package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

var (
	kvSeeds = flag.Int("kv.seeds", 40, "seeds that the store is simulated with")
	kvFirst = flag.Uint64("kv.first", 1, "the first of them")
)

// world is a server on a simulated disk.
type world struct {
	model
	p     *pair.Pair
	rng   *rand.Rand
	cores int
	v     atomic.Pointer[server]
}

// simulate runs f with a store in a bubble, where time passes by itself.
func simulate(t *testing.T, seed uint64, f func(w *world)) {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), cores: 1 + int(seed%3)}
	cfg := pair.Config{Seed: seed, Serve: &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		v := w.v.Load()
		return v != nil && v.handle(c, m)
	}}}
	cfg.Server.Plane = dataplane.Config{Cores: w.cores}
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		w.t, w.p = t, p
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		f(w)
	})
}

// open opens the store, on a disk without faults.
func (w *world) open() error {
	w.disk(simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond})
	v := &server{m: w.p.Server, dir: "/kv", cores: w.cores, segment: 4096, log: slog.New(slog.DiscardHandler)}
	err := v.open()
	w.v.Store(v)
	return err
}

func (w *world) disk(opt simnet.DiskOptions) {
	w.p.Do(func() { w.p.ServerHost.Disk().Configure(opt) })
	faults := opt.ErrorEvery > 0 || opt.Room > 0
	if w.faults && !faults {
		w.pass(2 * retryAfter) // what has failed is over
	}
	w.faults = faults
}

func (w *world) restart(power bool) {
	w.v.Store(nil)
	w.p.Restart(power)
	w.under.Wait() // all calls have ended
	w.died()
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	over := make(chan struct{})
	w.p.Do(func() { w.p.Network.After(d, func() { close(over) }) })
	<-over
}

// load makes requests, each for another key.
func (w *world) load(n int) {
	for _, key := range w.rng.Perm(keys)[:n] {
		w.ask(w.p.Conn, pick(w.rng), key, func() {})
	}
}

func (w *world) segments() (names []string) {
	w.p.Do(func() { names, _ = w.p.ServerHost.Disk().List("/kv") })
	return names
}

// A process that is killed, power cuts, writes that are torn, overtake each other, fail, or
// find the disk full; the model knows what must be there.
func TestWhatIsAcknowledgedSurvivesWhateverHappensToTheDisk(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that a seed takes the same course again
	all, compacted := simnet.DiskCounts{}, 0
	for i := range *kvSeeds {
		seed := *kvFirst + uint64(i)
		t.Run(fmt.Sprintf("kv.first=%d", seed), func(t *testing.T) {
			simulate(t, seed, func(w *world) {
				for range 8 {
					w.round()
				}
				w.flip()
				w.p.Do(func() {
					c := w.p.ServerHost.Disk().Counts()
					all.Crashes, all.Lost, all.Torn, all.Errors = all.Crashes+c.Crashes, all.Lost+c.Lost, all.Torn+c.Torn, all.Errors+c.Errors
				})
				if names := w.segments(); !strings.Contains(names[0], "-00000001-") {
					compacted++
				}
			})
		})
	}
	if *kvSeeds >= 20 && (all.Crashes == 0 || all.Lost == 0 || all.Torn == 0 || all.Errors == 0 || compacted == 0) {
		t.Errorf("not everything happened: %+v, %d with compaction", all, compacted)
	}
}

// round is some load with some faults, and then perhaps the end of the process.
func (w *world) round() {
	opt := simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Duration(1+w.rng.IntN(2000)) * time.Microsecond}
	switch w.rng.IntN(5) {
	case 0:
		opt.ErrorEvery = 5 + w.rng.IntN(40)
	case 1:
		opt.Room = int64(1 + w.rng.IntN(40000))
	}
	w.disk(opt)
	for range w.rng.IntN(12) {
		w.load(1 + w.rng.IntN(24))
		w.under.Wait()
		if w.rng.IntN(8) == 0 {
			w.pass(retryAfter + 2*markAfter)
		}
	}
	if w.rng.IntN(4) > 0 {
		w.load(24)
		w.pass(time.Duration(w.rng.IntN(int(4 * time.Millisecond))))
		w.restart(w.rng.IntN(3) > 0)
		if err := w.open(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.disk(simnet.DiskOptions{})
	w.readAll(w.p.Conn)
	if data, err := call(w.p.Context, w.p.Conn, msgScan, nil, nil); err != nil || !slices.Equal(keysOf(data), w.present()) {
		w.t.Errorf("the keys are %q, %v; want %q", keysOf(data), err, w.present())
	}
}

// flip flips a bit of the log, while nothing is written. Every value is right or an error,
// and so behind a restart, if the server starts.
func (w *world) flip() {
	w.pass(time.Second) // marks are written
	names := w.segments()
	w.p.Do(func() {
		for range 100 {
			if w.p.ServerHost.Disk().Flip("/kv/"+names[w.rng.IntN(len(names))], int64(w.rng.IntN(4096)), uint(w.rng.IntN(8))) {
				break
			}
		}
	})
	w.faults = true
	w.readAll(w.p.Conn)
	w.restart(false)
	err := w.open()
	w.faults = true
	if err == nil {
		w.readAll(w.p.Conn)
	} else if !errors.Is(err, errDamaged) {
		w.t.Error(err)
	}
}

func TestAFullDiskRefusesChangesAndReadsGoOn(t *testing.T) {
	simulate(t, 3, func(w *world) {
		for key := range keys {
			w.ask(w.p.Conn, msgPut, key, func() {})
		}
		w.under.Wait()
		w.disk(simnet.DiskOptions{Room: 1})
		for range 2 {
			if _, err := call(w.p.Context, w.p.Conn, msgPut, nameOf(0), []byte("more")); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("a put: %v", err)
			}
			w.readAll(w.p.Conn)
			w.pass(2 * retryAfter)
		}
		w.disk(simnet.DiskOptions{})
		w.ask(w.p.Conn, msgPut, 0, func() {})
		w.under.Wait()
		w.readAll(w.p.Conn)
	})
}

func TestCompactionKeepsWhatIsThereAndNothingElse(t *testing.T) {
	simulate(t, 3, func(w *world) {
		for key := range keys { // some of which are not touched any more
			w.ask(w.p.Conn, msgPut, key, func() {})
		}
		for range 300 {
			w.under.Wait()
			for key := range 3 {
				w.ask(w.p.Conn, pick(w.rng), key, func() {})
			}
		}
		w.under.Wait()
		w.pass(time.Second)
		if names := w.segments(); len(names) > 60 || strings.Contains(names[0], "-00000001-") {
			t.Errorf("nothing is compacted: %d segments, from %s on", len(names), names[0])
		}
		w.readAll(w.p.Conn)
		w.restart(true)
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		w.readAll(w.p.Conn)
	})
}
