package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

var (
	kvSeeds = flag.Int("kv.seeds", 40, "seeds that the store is simulated with")
	kvFirst = flag.Uint64("kv.first", 1, "the first of them")
)

const keys = 30

// model makes requests and knows what the store must have.
type model struct {
	pair.Ledger
	t       testing.TB
	ctx     context.Context
	rng     *rand.Rand
	clients []client
	under   sync.WaitGroup // requests under way
	version atomic.Uint64
	faults  atomic.Bool // requests may be refused
}

// valueOf is up to 1500 bytes, of some versions 20 000, that begin with the version.
func valueOf(key string, version uint64) []byte {
	most := 1500
	switch {
	case version == 0:
		return nil
	case version%16 == 0:
		most = 20000
	}
	text := fmt.Appendf(nil, "%d of %s,", version, key)
	n := max(len(text), int(uint32(version)*2654435761>>8)%most)
	return bytes.Repeat(text, 1+n/len(text))[:n]
}

func pick(rng *rand.Rand) uint16 {
	return []uint16{msgPut, msgPut, msgPut, msgGet, msgDelete}[rng.IntN(5)]
}

// ask makes a request and judges the answer. The error says that there is none.
func (o *model) ask(typ uint16, number int) error {
	key, version := fmt.Sprintf("key-%03d", number), uint64(0)
	if typ == msgPut {
		version = o.version.Add(1)
	}
	data, err := o.clients[number%len(o.clients)].do(o.ctx, typ, key, valueOf(key, version))
	refused, missing := errors.Is(err, errRefused), errors.Is(err, errNotFound)
	switch {
	case refused && !o.faults.Load():
		o.t.Errorf("%s: %v", key, err)
	case err != nil && !missing && typ != msgGet:
		o.Refused(key, version)
	case err == nil && typ != msgGet:
		o.Acknowledged(key, version)
	case err == nil || missing:
		version = 0
		_, _ = fmt.Sscanf(string(data), "%d of", &version)
		if !bytes.Equal(data, valueOf(key, version)) {
			o.t.Errorf("%s: a wrong value of %d bytes", key, len(data))
		}
		if err := o.Found(key, version); err != nil {
			o.t.Error(err)
		}
	}
	if refused || missing {
		return nil
	}
	return err
}

// all asks the same of the first n keys, and waits.
func (o *model) all(typ uint16, n int) {
	for key := range n {
		o.under.Go(func() { _ = o.ask(typ, key) })
	}
	o.under.Wait()
}

// world is a server on a simulated disk, and its client.
type world struct {
	model
	*pair.Pair
	cores int
	salts *rand.Rand
	v     atomic.Pointer[server]
}

// simulate runs f with a store in a bubble, where time passes by itself.
func simulate(t *testing.T, seed uint64, f func(w *world)) {
	w := &world{cores: 1 + int(seed%3), salts: rand.New(rand.NewPCG(seed, 2))}
	cfg := pair.Config{Seed: seed}
	cfg.Server.Plane.Cores = w.cores
	cfg.Serve = &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		v := w.v.Load()
		return v != nil && v.handle(c, m)
	}}
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		w.t, w.ctx, w.rng, w.Pair = t, p.Context, rand.New(rand.NewPCG(seed, 1)), p
		w.open(nil)
		f(w)
	})
}

// open opens the store, on a disk without faults. It may fail with allowed.
func (w *world) open(allowed error) bool {
	w.clients = []client{{w.Conn}}
	w.disk(simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond})
	v := &server{m: w.Server, dir: "/kv", segment: 4096, salt: w.salts.Uint32, log: slog.New(slog.DiscardHandler)}
	err := v.open(w.cores)
	if w.v.Store(v); err != nil && !errors.Is(err, allowed) {
		w.t.Fatal(err)
	}
	return err == nil
}

// restart ends the process, and opens the store in another one.
func (w *world) restart(power bool, allowed error) bool {
	w.v.Store(nil)
	w.Restart(power)
	w.under.Wait() // all calls have ended
	w.Restarted()
	return w.open(allowed)
}

func (w *world) disk(opt simnet.DiskOptions) {
	w.Do(func() { w.ServerHost.Disk().Configure(opt) })
	faults := opt.ErrorEvery > 0 || opt.Room > 0 || opt.StopAt > 0 || opt.Fail != nil
	if w.faults.Load() && !faults {
		w.Pass(2 * retryAfter) // what has failed is over
	}
	w.faults.Store(faults)
}

// load makes requests, each for another key.
func (w *world) load(n int) {
	for _, key := range w.rng.Perm(keys)[:n] {
		typ := pick(w.rng)
		w.under.Go(func() { _ = w.ask(typ, key) })
	}
}

func (w *world) files() (names []string) {
	w.Do(func() { names, _ = w.ServerHost.Disk().List("/kv") })
	return names
}

// compacted is 1 if the first file is gone.
func (w *world) compacted() int { return 1 - strings.Count(w.files()[0], "-00000001-") }

// A process that is killed, power cuts, writes that are torn, overtake each other, fail, or
// find the disk full; the model knows what must be there.
func TestWhatIsAcknowledgedSurvivesWhateverHappensToTheDisk(t *testing.T) {
	// A seed takes the same course again, as far as it is in our hands: the collector would
	// change the order in which goroutines run.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	seen := make([]int, 6)
	for i := range *kvSeeds {
		seed := *kvFirst + uint64(i)
		runtime.GC()
		t.Run(fmt.Sprintf("kv.first=%d", seed), func(t *testing.T) {
			simulate(t, seed, func(w *world) {
				for range 8 {
					w.round()
				}
				w.flip()
				var c simnet.DiskCounts
				w.Do(func() { c = w.ServerHost.Disk().Counts() })
				for i, n := range []int{c.Crashes, c.Stops, c.Lost, c.Torn, c.Errors, w.compacted()} {
					seen[i] += n
				}
			})
		})
	}
	if *kvSeeds >= 20 && slices.Min(seen) == 0 {
		t.Errorf("crashes, stops, writes lost, torn, failed, compactions: %d, want some of each", seen)
	}
}

// round is some load with some faults, and then perhaps the end of the process.
func (w *world) round() {
	opt := simnet.DiskOptions{Jitter: time.Duration(1+w.rng.IntN(2000)) * time.Microsecond}
	if w.rng.IntN(4) == 0 {
		opt.ErrorEvery = 5 + w.rng.IntN(40)
	}
	if w.rng.IntN(6) == 0 {
		opt.Room = int64(1 + w.rng.IntN(40000))
	}
	if w.rng.IntN(3) == 0 {
		opt.StopAt = 1 + w.rng.IntN(6)
	}
	w.disk(opt)
	for range w.rng.IntN(12) {
		w.load(1 + w.rng.IntN(24))
		w.under.Wait()
		if w.rng.IntN(8) == 0 {
			w.Pass(retryAfter + 2*markAfter)
		}
	}
	if w.rng.IntN(4) > 0 || opt.StopAt > 0 {
		w.load(24)
		w.Pass(time.Duration(w.rng.IntN(int(4 * time.Millisecond))))
		w.restart(w.rng.IntN(3) > 0, nil)
	}
	w.disk(simnet.DiskOptions{})
	w.all(msgGet, keys)
	var names []string
	err := w.clients[0].scan(w.ctx, "", func(key string) { names = append(names, key) })
	if err != nil || !slices.Equal(names, w.Present()) {
		w.t.Errorf("the keys are %q, %v; want %q", names, err, w.Present())
	}
}

// flip flips a bit of the log, while nothing is written. Every value is right or an error,
// and so behind a restart, if the server starts.
func (w *world) flip() {
	w.Pass(time.Second) // marks are written
	names, flipped := w.files(), false
	for tries := 0; tries < 100 && !flipped; tries++ {
		path, at := "/kv/"+names[w.rng.IntN(len(names))], int64(w.rng.IntN(4096))
		w.Do(func() { flipped = w.ServerHost.Disk().Flip(path, at, uint(w.rng.IntN(8))) })
	}
	w.faults.Store(true)
	w.all(msgGet, keys)
	begins := w.restart(false, errDamaged)
	if w.faults.Store(true); begins {
		w.all(msgGet, keys)
	}
}

func TestAFullDiskRefusesChangesAndReadsGoOn(t *testing.T) {
	simulate(t, 3, func(w *world) {
		w.all(msgPut, keys)
		w.disk(simnet.DiskOptions{Room: 1})
		for range 2 {
			_, err := w.clients[0].do(w.ctx, msgPut, "key-000", []byte("more"))
			if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("a put: %v", err)
			}
			w.all(msgGet, keys)
			w.Pass(2 * retryAfter)
		}
		w.disk(simnet.DiskOptions{})
		w.all(msgPut, 1)
		w.all(msgGet, keys)
	})
}

func TestCompactionKeepsWhatIsThereAndNothingElse(t *testing.T) {
	simulate(t, 3, func(w *world) {
		w.all(msgPut, keys) // some of which are not touched any more
		for range 900 {
			_ = w.ask(pick(w.rng), w.rng.IntN(3))
		}
		w.Pass(time.Second)
		if n := len(w.files()); n > 60 || w.compacted() == 0 {
			t.Errorf("nothing is compacted: %d segments", n)
		}
		w.all(msgGet, keys)
		w.restart(true, nil)
		w.all(msgGet, keys)
	})
}

// The name of a segment says where the log before it ends: a file that says so now is removed
// when another one says it durably.
func TestWhereTheLogEndsIsKnownWhereverTheProcessStops(t *testing.T) {
	fail := func(kind uring.Kind, _ string) unix.Errno {
		return map[uring.Kind]unix.Errno{uring.KindSync: unix.EIO}[kind]
	}
	for stop := range 6 {
		simulate(t, 3, func(w *world) {
			w.all(msgPut, 1)
			w.disk(simnet.DiskOptions{StopAt: 2, Fail: fail})
			w.all(msgPut, 1) // fails and is cut off: it would be read again without the next name,
			w.all(msgPut, 1) // which there is now
			w.restart(false, nil)
			w.all(msgGet, 1)
			w.disk(simnet.DiskOptions{StopAt: stop})
			w.all(msgPut, 1)
			w.restart(false, nil)
			w.all(msgGet, 1)
		})
	}
}

// A file that the log goes past is left by a process that could not use it.
func TestAMissingSegmentIsDamageAndOneThatTheLogGoesPastIsNot(t *testing.T) {
	for _, past := range []bool{false, true} {
		simulate(t, 3, func(w *world) {
			w.all(msgPut, keys)
			w.Pass(time.Second)
			names := w.files()
			last := "/kv/" + names[len(names)-1]
			w.Do(func() {
				disk := w.ServerHost.Disk()
				if past {
					_ = disk.Rename(last, strings.Replace(last, "1-0", "1-1", 1)) // a higher number
					_, _ = disk.Open(last, uring.FileOptions{Create: true})
				} else {
					_ = disk.Remove("/kv/" + names[len(names)-2])
				}
			})
			if begins := w.restart(false, errDamaged); begins != past {
				t.Errorf("past it %t: it begins %t", past, begins)
			} else if begins {
				w.all(msgGet, keys)
			}
		})
	}
}
