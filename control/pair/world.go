package pair

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// World is a server on a simulated disk, and the audit of it. Methods are for the goroutine
// of the test.
type World struct {
	*Audit
	*Pair
}

// calm is a disk without faults.
var calm = simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond}

// Simulate runs f with a server on an empty disk, in a bubble where time passes by itself.
func Simulate(t *testing.T, s Durable, f func(w *World)) {
	t.Helper()
	w := &World{}
	cfg := s.Pair
	cfg.Open = func(p *Pair) (*control.Dispatcher, error) {
		if w.Audit != nil { // it is not the first process
			w.wait() // all requests have ended
			w.Restarted()
			w.MayRefuse(false)
		}
		p.Do(func() { p.ServerHost.Disk().Configure(calm) })
		return s.Open(p)
	}
	Test(t, cfg, func(t *testing.T, p *Pair) {
		w.Pair, w.Audit = p, NewAudit(t, p.Context, s, cfg.Seed)
		w.Conns = []*control.Conn{p.Conn}
		f(w)
	})
}

// Restart ends the process, or cuts the power, and starts another one, whose disk has no
// faults. The error is that of Durable.Open.
func (w *World) Restart(power bool) error {
	err := w.Pair.Restart(power)
	w.Conns[0] = w.Conn
	return err
}

// MustRestart is Restart that fails the test if the server does not start.
func (w *World) MustRestart(power bool) {
	if err := w.Restart(power); err != nil {
		w.server.Wrong(fmt.Errorf("the server does not start: %w", err))
		w.MayRefuse(true) // there is none
	}
}

// Disk changes the faults of the disk. The server may refuse requests while it has faults, and
// when it has none any more recovers, for Durable.Pause.
func (w *World) Disk(opt simnet.DiskOptions) {
	w.Do(func() { w.ServerHost.Disk().Configure(opt) })
	faults := opt.ErrorEvery > 0 || opt.Room > 0 || opt.StopAt > 0 || opt.Fail != nil
	if w.faults.Load() && !faults {
		w.Pass(w.server.Pause)
	}
	w.MayRefuse(faults)
}

// Files are the names in a directory of the disk, in order.
func (w *World) Files(dir string) (names []string) {
	w.Do(func() { names, _ = w.ServerHost.Disk().List(dir) })
	return names
}

// Round is some load with some faults, and then perhaps the end of the process or of the
// power. Then the server must have every value that it has acknowledged.
func (w *World) Round() {
	opt := simnet.DiskOptions{Jitter: time.Duration(1+w.Rand.IntN(2000)) * time.Microsecond}
	if w.Rand.IntN(4) == 0 {
		opt.ErrorEvery = 5 + w.Rand.IntN(40)
	}
	if w.Rand.IntN(6) == 0 {
		opt.Room = int64(1 + w.Rand.IntN(40000))
	}
	if w.Rand.IntN(3) == 0 {
		opt.StopAt = 1 + w.Rand.IntN(6)
	}
	w.Disk(opt)
	for range w.Rand.IntN(12) {
		w.load(1 + w.Rand.IntN(24))
		w.wait()
		if w.Rand.IntN(8) == 0 {
			w.Pass(w.server.Pause)
		}
	}
	if w.Rand.IntN(4) > 0 || opt.StopAt > 0 {
		w.load(24)
		w.Pass(time.Duration(w.Rand.IntN(int(4 * time.Millisecond))))
		w.MustRestart(w.Rand.IntN(3) > 0)
	}
	w.Disk(simnet.DiskOptions{})
	w.Everything()
}

// Fill has the disk be full for a while: each Put must be refused with the reason, and each
// Get answered. With room again Puts must go on.
func (w *World) Fill() {
	w.Disk(simnet.DiskOptions{Room: 1})
	for range 2 { // the second time after the server's own attempts
		_, err := w.server.Ask(w.ctx, w.Conn, Put, keyOf(0), []byte("more"))
		if !errors.Is(err, w.server.Refused) || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
			w.server.Wrong(fmt.Errorf("a put on a full disk ends with %v", err))
		}
		w.All(Get, Keys)
		w.Pass(w.server.Pause)
	}
	w.Disk(simnet.DiskOptions{})
	w.All(Put, 1)
	w.All(Get, Keys)
}

// flips is the number of bits that Flip flips.
const flips = 5

// Flip flips bits of files in dir, one after the other, while the server writes no byte. Every
// value is right or an error then, also after a restart, if the server starts: else its error
// wraps damaged. The World is not used any more.
func (w *World) Flip(dir string, damaged error) {
	for range flips {
		w.MayRefuse(true)
		w.Pass(w.server.Pause)
		w.flip(dir)
		w.All(Get, Keys)
		switch err := w.Restart(false); {
		case errors.Is(err, damaged):
			return
		case err != nil:
			w.server.Wrong(fmt.Errorf("the server does not start: %w", err))
			return
		}
		w.MayRefuse(true)
		w.All(Get, Keys)
	}
}

// flip flips a bit somewhere.
func (w *World) flip(dir string) {
	names, flipped := w.Files(dir), false
	for tries := 0; tries < 100 && !flipped && len(names) > 0; tries++ {
		path, at := dir+"/"+names[w.Rand.IntN(len(names))], int64(w.Rand.IntN(4096))
		w.Do(func() { flipped = w.ServerHost.Disk().Flip(path, at, uint(w.Rand.IntN(8))) })
	}
}

// rounds of each seed.
const rounds = 8

// With enough seeds every kind of fault occurs.
const enough = 20

// Seeds are the seeds of a test, by its flags.
type Seeds struct {
	name  string
	n     *int
	first *uint64
}

// SeedFlags makes the flags -NAME.seeds, the number of seeds, and -NAME.first. For a variable
// of a test.
func SeedFlags(name string, n int) Seeds {
	return Seeds{name, flag.Int(name+".seeds", n, "seeds that the server is simulated with"), flag.Uint64(name+".first", 1, "the first of them")}
}

// Enough says whether so many seeds should see every kind of fault.
func (s Seeds) Enough() bool { return *s.n >= enough }

// Endure runs a World for each seed: rounds with all faults, and then f. The test fails as
// well if enough seeds have not seen each kind of fault. Each seed is a subtest that is named
// by the flag that repeats it.
func Endure(t *testing.T, seeds Seeds, s func(seed uint64) Durable, f func(w *World)) {
	defer OnOneProcessor()()
	seen := make([]int, 6)
	for i := range *seeds.n {
		seed := *seeds.first + uint64(i)
		runtime.GC()
		t.Run(fmt.Sprintf("%s.first=%d", seeds.name, seed), func(t *testing.T) {
			Simulate(t, s(seed), func(w *World) {
				for range rounds {
					w.Round()
				}
				f(w)
				var c simnet.DiskCounts
				w.Do(func() { c = w.ServerHost.Disk().Counts() })
				for i, n := range []int{c.Crashes, c.Stops, c.Lost, c.Torn, c.Unnamed, c.Errors} {
					seen[i] += n
				}
			})
		})
	}
	if seeds.Enough() && slices.Min(seen) == 0 {
		t.Errorf("crashes, stops, writes lost, torn, names lost, failures: %d, want some of each", seen)
	}
}
