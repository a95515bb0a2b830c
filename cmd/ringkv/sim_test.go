package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

var seeds = pair.SeedFlags("kv", 40)

// tested is how the store is tested, and asked.
func tested(seed uint64) pair.Durable {
	s := pair.Durable{Missing: errNotFound, Refused: errRefused, Pause: 2 * retryAfter}
	s.Pair.Seed, s.Pair.Server.Plane.Cores = seed, 1+int(seed%3)
	s.Open = openStore(seed, new(bool))
	types := []uint16{pair.Put: kvformat.Put, pair.Get: kvformat.Get, pair.Delete: kvformat.Delete}
	s.Ask = func(ctx context.Context, c *control.Conn, a pair.Act, key string, v []byte) ([]byte, error) {
		return do(ctx, c, types[a], key, v)
	}
	s.List = func(ctx context.Context, c *control.Conn) (keys []string, err error) {
		err = scan(ctx, c, "", func(key string) { keys = append(keys, key) })
		return keys, err
	}
	return s
}

// openStore opens a store for each process of a server.
func openStore(seed uint64, accept *bool) func(p *pair.Pair) (*control.Dispatcher, error) {
	salts := rand.New(rand.NewPCG(seed, 2))
	return func(p *pair.Pair) (*control.Dispatcher, error) {
		v := &server{m: p.Server, dir: "/kv", segment: 4096, salt: salts.Uint32, log: slog.New(slog.DiscardHandler), acceptLoss: *accept}
		return &control.Dispatcher{Fast: v.handle}, v.open(len(p.Server.Cores()))
	}
}

// compacted says whether the first file is gone.
func compacted(w *pair.World) bool { return !strings.Contains(w.Files("/kv")[0], "-00000001-") }

// A process that is killed, power cuts, writes that are torn, overtake each other, fail, or
// find the disk full, and in the end a bit that flips.
// Matrix: KV-01, KV-04, KV-07
func TestWhatIsAcknowledgedSurvivesWhateverHappensToTheDisk(t *testing.T) {
	compactions := 0
	pair.Endure(t, seeds, tested, func(w *pair.World) {
		if compacted(w) {
			compactions++
		}
		w.Flip("/kv", errDamaged)
	})
	if seeds.Enough() && compactions == 0 {
		t.Error("nothing was compacted")
	}
}

// Matrix: KV-06
func TestAFullDiskRefusesChangesAndReadsGoOn(t *testing.T) {
	pair.Simulate(t, tested(3), func(w *pair.World) {
		w.All(pair.Put, pair.Keys)
		w.Fill()
		w.Disk(simnet.DiskOptions{Room: 1})
		if _, err := tested(3).Ask(w.Context, w.Conn, pair.Delete, "key-000", nil); err == nil || !strings.Contains(err.Error(), "made room") {
			t.Errorf("a delete on a full disk: %v", err)
		}
	})
}

// Matrix: KV-07
func TestCompactionKeepsWhatIsThereAndNothingElse(t *testing.T) {
	pair.Simulate(t, tested(3), func(w *pair.World) {
		w.All(pair.Put, pair.Keys) // some of which are not touched any more
		for range 900 {
			_ = w.Ask(pair.Random(w.Rand), w.Rand.IntN(3))
		}
		w.Pass(time.Second)
		if n := len(w.Files("/kv")); n > 60 || !compacted(w) {
			t.Errorf("nothing is compacted: %d segments", n)
		}
		w.All(pair.Get, pair.Keys)
		w.MustRestart(true)
		w.All(pair.Get, pair.Keys)
	})
}

// The name of a segment says where the log before it ends. Once clients were told so it stays,
// until the name of another one says it durably.
// Matrix: KV-01
func TestWhereTheLogEndsIsKnownWhereverTheProcessStops(t *testing.T) {
	for at := range 300 {
		broken := []uring.Kind{uring.KindSync, uring.KindWrite}[min(at/6, 1)]
		fail := func(kind uring.Kind, _ string) unix.Errno {
			return map[uring.Kind]unix.Errno{broken: unix.EIO}[kind]
		}
		pair.Simulate(t, tested(uint64(at)), func(w *pair.World) {
			w.All(pair.Put, 1)
			w.Disk(simnet.DiskOptions{StopAt: 2, Fail: fail})
			w.All(pair.Put, 1) // fails and is cut off: it would be read again without the next name,
			w.All(pair.Put, 1) // which there is now
			w.MustRestart(false)
			w.All(pair.Get, 1)
			w.Disk(simnet.DiskOptions{StopAt: at % 6})
			w.All(pair.Put, 1)
			w.MustRestart(broken == uring.KindWrite) // bytes that a failed sync has lost do not come back
			w.All(pair.Get, 1)
		})
	}
}

// A file that the log skips is left by a process that could not use it. Any missing record is
// damage, until the operator accepts the loss, even if the mark could not be set for a while.
// Strange files stay.
// Matrix: KV-10
func TestWhatIsMissingOfTheLogIsNoticed(t *testing.T) {
	strange := []string{".log.bak", ".log.d", ".log~"}
	for what, damage := range map[string]bool{
		"first": true, "middle": true, "last": true, "mark": true, "empty": true, "half": true, "past": false, "strange": false, "cut": true,
	} {
		s, accept := tested(3), false
		s.Open = openStore(3, &accept)
		pair.Simulate(t, s, func(w *pair.World) {
			w.Disk(simnet.DiskOptions{Fail: func(_ uring.Kind, path string) unix.Errno {
				return map[string]unix.Errno{".mark": unix.EIO}[filepath.Ext(path)]
			}})
			w.All(pair.Put, pair.Keys)
			w.Disk(simnet.DiskOptions{}) // the mark is set now
			names := w.Files("/kv")
			isMark := func(name string) bool { return strings.HasSuffix(name, ".mark") }
			marked := names[slices.IndexFunc(names, isMark)]
			names = slices.DeleteFunc(names, isMark)
			last := len(names) - 1
			w.Do(func() {
				disk := w.ServerHost.Disk()
				cut := func(name string, part, less int64) {
					fd, _ := disk.Open("/kv/"+name, uring.FileOptions{Write: true})
					info, _ := disk.Stat(fd)
					_ = disk.Truncate(fd, info.Size*part/2-less)
				}
				switch what {
				case "empty":
					cut(names[last], 0, 0)
				case "half":
					cut(names[last], 1, 0)
				case "cut":
					cut(names[last-1], 2, 1)
				case "past":
					_, k, _ := kvformat.ParseName(marked)
					g := kvformat.Segment{Cores: 1, Number: k.Durable.Segment() + 1, Before: k.Durable}
					_, _ = disk.Open("/kv/"+g.Name(), uring.FileOptions{Create: true})
				case "strange":
					for _, end := range strange {
						_, _ = disk.Open("/kv/"+strings.TrimSuffix(names[last], ".log")+end, uring.FileOptions{Create: true})
					}
				default:
					_ = disk.Remove("/kv/" + map[string]string{"first": names[0], "middle": names[last-1], "last": names[last], "mark": marked}[what])
				}
			})
			for range 2 { // a process that refuses leaves everything as it is
				if err := w.Restart(false); errors.Is(err, errDamaged) != damage || strings.Contains(fmt.Sprint(err), "0of0") {
					t.Errorf("%s: it begins with %v", what, err)
				}
			}
			if accept = true; damage {
				w.MustRestart(false)
			}
			w.All(pair.Put, pair.Keys)
			accept = false
			w.MustRestart(true)
			w.All(pair.Get, pair.Keys)
			if left := strings.Join(w.Files("/kv"), " "); what == "strange" && strings.Count(left, ".log.")+strings.Count(left, ".log~") != len(strange) {
				t.Errorf("of the strange files there are %s", left)
			}
		})
	}
}
