package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/durabletest"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

var seeds = durabletest.SeedFlags("kv", 40)

// tested is how the store is tested, and asked.
func tested(seed uint64) durabletest.Server {
	s := durabletest.Server{Missing: errNotFound, Refused: errRefused, Pause: 2 * retryAfter}
	s.Pair.Seed, s.Pair.Server.Plane.Cores = seed, 1+int(seed%3)
	salts := rand.New(rand.NewPCG(seed, 2))
	s.Open = func(p *pair.Pair) (*control.Dispatcher, error) {
		v := &server{m: p.Server, dir: "/kv", segment: 4096, salt: salts.Uint32, log: slog.New(slog.DiscardHandler)}
		return &control.Dispatcher{Fast: v.handle}, v.open(s.Pair.Server.Plane.Cores)
	}
	types := []uint16{durabletest.Put: msgPut, durabletest.Get: msgGet, durabletest.Delete: msgDelete}
	s.Ask = func(ctx context.Context, c *control.Conn, a durabletest.Act, key string, v []byte) ([]byte, error) {
		return do(ctx, c, types[a], key, v)
	}
	s.List = func(ctx context.Context, c *control.Conn) (keys []string, err error) {
		err = scan(ctx, c, "", func(key string) { keys = append(keys, key) })
		return keys, err
	}
	return s
}

// compacted says whether the first file is gone.
func compacted(w *durabletest.World) bool { return !strings.Contains(w.Files("/kv")[0], "-00000001-") }

// A process that is killed, power cuts, writes that are torn, overtake each other, fail, or
// find the disk full, and in the end a bit that flips.
func TestWhatIsAcknowledgedSurvivesWhateverHappensToTheDisk(t *testing.T) {
	compactions := 0
	durabletest.Endure(t, seeds, tested, func(w *durabletest.World) {
		if compacted(w) {
			compactions++
		}
		w.Flip("/kv", errDamaged)
	})
	if seeds.Enough() && compactions == 0 {
		t.Error("nothing was compacted")
	}
}

func TestAFullDiskRefusesChangesAndReadsGoOn(t *testing.T) {
	durabletest.Simulate(t, tested(3), func(w *durabletest.World) {
		w.All(durabletest.Put, durabletest.Keys)
		w.Fill()
	})
}

func TestCompactionKeepsWhatIsThereAndNothingElse(t *testing.T) {
	durabletest.Simulate(t, tested(3), func(w *durabletest.World) {
		w.All(durabletest.Put, durabletest.Keys) // some of which are not touched any more
		for range 900 {
			_ = w.Ask(durabletest.Random(w.Rand), w.Rand.IntN(3))
		}
		w.Pass(time.Second)
		if n := len(w.Files("/kv")); n > 60 || !compacted(w) {
			t.Errorf("nothing is compacted: %d segments", n)
		}
		w.All(durabletest.Get, durabletest.Keys)
		w.MustRestart(true)
		w.All(durabletest.Get, durabletest.Keys)
	})
}

// The name of a segment says where the log before it ends. Once clients were told so it stays,
// until the name of another one says it durably.
func TestWhereTheLogEndsIsKnownWhereverTheProcessStops(t *testing.T) {
	for at := range 300 {
		broken := []uring.Kind{uring.KindSync, uring.KindWrite}[min(at/6, 1)]
		fail := func(kind uring.Kind, _ string) unix.Errno {
			return map[uring.Kind]unix.Errno{broken: unix.EIO}[kind]
		}
		durabletest.Simulate(t, tested(uint64(at)), func(w *durabletest.World) {
			w.All(durabletest.Put, 1)
			w.Disk(simnet.DiskOptions{StopAt: 2, Fail: fail})
			w.All(durabletest.Put, 1) // fails and is cut off: it would be read again without the next name,
			w.All(durabletest.Put, 1) // which there is now
			w.MustRestart(false)
			w.All(durabletest.Get, 1)
			w.Disk(simnet.DiskOptions{StopAt: at % 6})
			w.All(durabletest.Put, 1)
			w.MustRestart(broken == uring.KindWrite) // what a failed sync has lost does not come back
			w.All(durabletest.Get, 1)
		})
	}
}

// A file that the log goes past is left by a process that could not use it. What is cut off of
// another one is an error to those who read it.
func TestAMissingSegmentIsDamageAndOneThatTheLogGoesPastIsNot(t *testing.T) {
	for _, what := range []string{"missing", "past", "cut"} {
		durabletest.Simulate(t, tested(3), func(w *durabletest.World) {
			w.All(durabletest.Put, durabletest.Keys)
			w.Pass(time.Second)
			names := w.Files("/kv")
			before, last := "/kv/"+names[len(names)-2], "/kv/"+names[len(names)-1]
			w.Do(func() {
				switch disk := w.ServerHost.Disk(); what {
				case "missing":
					_ = disk.Remove(before)
				case "past":
					_ = disk.Rename(last, strings.Replace(last, "1-0", "1-1", 1)) // a higher number
					_, _ = disk.Open(last, uring.FileOptions{Create: true})
				case "cut":
					fd, _ := disk.Open(before, uring.FileOptions{Write: true})
					info, _ := disk.Stat(fd)
					_ = disk.Truncate(fd, info.Size-1)
				}
			})
			switch err := w.Restart(false); {
			case err == nil && what != "missing":
				w.MayRefuse(what == "cut")
				w.All(durabletest.Get, durabletest.Keys)
			case what != "missing" || !errors.Is(err, errDamaged):
				t.Errorf("%s: it begins with %v", what, err)
			}
		})
	}
}
