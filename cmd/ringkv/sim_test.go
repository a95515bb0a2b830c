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
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

var (
	kvSeeds = flag.Int("kv.seeds", 40, "seeds that the store is simulated with")
	kvFirst = flag.Uint64("kv.first", 1, "the first of them")
)

// world is a server on a simulated disk.
type world struct {
	model
	*pair.Pair
	rng   *rand.Rand
	cores int
	v     atomic.Pointer[server]
}

// simulate runs f with a store in a bubble, where time passes by itself.
func simulate(t *testing.T, seed uint64, f func(w *world)) {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), cores: 1 + int(seed%3)}
	cfg := pair.Config{Seed: seed}
	cfg.Serve = &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		v := w.v.Load()
		return v != nil && v.handle(c, m)
	}}
	cfg.Server.Plane.Cores = w.cores
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		w.t, w.Pair = t, p
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		f(w)
	})
}

// open opens the store, on a disk without faults.
func (w *world) open() error {
	w.disk(simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond})
	v := &server{m: w.Server, dir: "/kv", segment: 4096, log: slog.New(slog.DiscardHandler)}
	defer w.v.Store(v)
	return v.open(w.cores)
}

func (w *world) disk(opt simnet.DiskOptions) {
	w.Do(func() { w.ServerHost.Disk().Configure(opt) })
	faults := opt.ErrorEvery > 0 || opt.Room > 0
	if w.faults.Load() && !faults {
		w.Pass(2 * retryAfter) // what has failed is over
	}
	w.faults.Store(faults)
}

// restart ends the process, and opens the store in another one.
func (w *world) restart(power bool) error {
	w.v.Store(nil)
	w.Restart(power)
	w.under.Wait() // all calls have ended
	w.Restarted()
	return w.open()
}

// load makes requests, each for another key.
func (w *world) load(n int) {
	for _, key := range w.rng.Perm(keys)[:n] {
		w.ask(w.Conn, pick(w.rng), key, func() {})
	}
}

func (w *world) readAll() { w.all(w.Conn, msgGet, keys) }

func (w *world) files() (names []string) {
	w.Do(func() { names, _ = w.ServerHost.Disk().List("/kv") })
	return names
}

func (w *world) compacted() bool { return !strings.Contains(w.files()[0], "-00000001-") }

// A process that is killed, power cuts, writes that are torn, overtake each other, fail, or
// find the disk full; the model knows what must be there.
func TestWhatIsAcknowledgedSurvivesWhateverHappensToTheDisk(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // a seed takes the same course again
	crashes, lost, torn, failed, compacted := 0, 0, 0, 0, 0
	for i := range *kvSeeds {
		seed := *kvFirst + uint64(i)
		t.Run(fmt.Sprintf("kv.first=%d", seed), func(t *testing.T) {
			simulate(t, seed, func(w *world) {
				for range 8 {
					w.round()
				}
				w.flip()
				var c simnet.DiskCounts
				w.Do(func() { c = w.ServerHost.Disk().Counts() })
				crashes, lost, torn, failed = crashes+c.Crashes, lost+c.Lost, torn+c.Torn, failed+c.Errors
				if w.compacted() {
					compacted++
				}
			})
		})
	}
	if *kvSeeds >= 20 && min(crashes, lost, torn, failed, compacted) == 0 {
		t.Errorf("crashes %d, writes lost %d, torn %d, failed %d, compacted %d: want some of each",
			crashes, lost, torn, failed, compacted)
	}
}

// round is some load with some faults, and then perhaps the end of the process.
func (w *world) round() {
	jitter := time.Duration(1+w.rng.IntN(2000)) * time.Microsecond
	opt := simnet.DiskOptions{Latency: time.Microsecond, Jitter: jitter}
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
			w.Pass(retryAfter + 2*markAfter)
		}
	}
	if w.rng.IntN(4) > 0 {
		w.load(24)
		w.Pass(time.Duration(w.rng.IntN(int(4 * time.Millisecond))))
		if err := w.restart(w.rng.IntN(3) > 0); err != nil {
			w.t.Fatal(err)
		}
	}
	w.disk(simnet.DiskOptions{})
	w.readAll()
	var names []string
	err := client{w.Conn}.scan(w.Context, "", func(key string) { names = append(names, key) })
	if err != nil || !slices.Equal(names, w.Present()) {
		w.t.Errorf("the keys are %q, %v; want %q", names, err, w.Present())
	}
}

// flip flips a bit of the log, while nothing is written. Every value is right or an error,
// and so behind a restart, if the server starts.
func (w *world) flip() {
	w.Pass(time.Second) // marks are written
	names := w.files()
	w.Do(func() {
		for range 100 {
			name, at := names[w.rng.IntN(len(names))], int64(w.rng.IntN(4096))
			if w.ServerHost.Disk().Flip("/kv/"+name, at, uint(w.rng.IntN(8))) {
				break
			}
		}
	})
	w.faults.Store(true)
	w.readAll()
	err := w.restart(false)
	w.faults.Store(true)
	if err == nil {
		w.readAll()
	} else if !errors.Is(err, errDamaged) {
		w.t.Error(err)
	}
}

func TestAFullDiskRefusesChangesAndReadsGoOn(t *testing.T) {
	simulate(t, 3, func(w *world) {
		w.all(w.Conn, msgPut, keys)
		w.disk(simnet.DiskOptions{Room: 1})
		for range 2 {
			_, err := client{w.Conn}.do(w.Context, msgPut, nameOf(0), []byte("more"))
			if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("a put: %v", err)
			}
			w.readAll()
			w.Pass(2 * retryAfter)
		}
		w.disk(simnet.DiskOptions{})
		w.all(w.Conn, msgPut, 1)
		w.readAll()
	})
}

func TestCompactionKeepsWhatIsThereAndNothingElse(t *testing.T) {
	simulate(t, 3, func(w *world) {
		w.all(w.Conn, msgPut, keys) // some of which are not touched any more
		for range 300 {
			w.under.Wait()
			for key := range 3 {
				w.ask(w.Conn, pick(w.rng), key, func() {})
			}
		}
		w.under.Wait()
		w.Pass(time.Second)
		if n := len(w.files()); n > 60 || !w.compacted() {
			t.Errorf("nothing is compacted: %d segments", n)
		}
		w.readAll()
		if err := w.restart(true); err != nil {
			w.t.Fatal(err)
		}
		w.readAll()
	})
}

// A file that the log goes past is left by a process that could not use it.
func TestAMissingSegmentIsDamageAndOneThatTheLogGoesPastIsNot(t *testing.T) {
	for _, past := range []bool{false, true} {
		simulate(t, 3, func(w *world) {
			w.all(w.Conn, msgPut, keys)
			w.Pass(time.Second)
			names := w.files()
			last := names[len(names)-1]
			var id, cores int
			var g segment
			_, err := fmt.Sscanf(last, segmentName, &id, &cores, &g.number, &g.salt, &g.before)
			if err != nil {
				w.t.Fatal(err)
			}
			name := fmt.Sprintf("/kv/"+segmentName, id, cores, g.number+1, g.salt, g.before)
			w.Do(func() {
				disk := w.ServerHost.Disk()
				if past {
					_ = disk.Rename("/kv/"+last, name)
					_, _ = disk.Open("/kv/"+last, uring.FileOptions{Create: true})
				} else {
					_ = disk.Remove("/kv/" + names[len(names)-2])
				}
			})
			switch err := w.restart(false); {
			case past && err == nil:
				w.readAll()
			case past || !errors.Is(err, errDamaged):
				t.Errorf("past it %t: %v", past, err)
			}
		})
	}
}
