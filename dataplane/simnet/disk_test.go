package simnet_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

func diskHost(seed uint64, opt simnet.DiskOptions) (*simnet.Network, *simnet.Host) {
	n := simnet.New(seed, simnet.Options{})
	h := n.Host(netip.MustParseAddr("10.0.0.1"))
	h.Disk().Configure(opt)
	return n, h
}

func advance(n *simnet.Network) {
	if at, ok := n.Next(); ok {
		n.Advance(at)
		n.Step()
	}
}

// ruled is a host whose disk is shown as a text: its files by name, each with one letter for
// every piece of 256 bytes. A sector has two.
type ruled struct {
	t    *testing.T
	n    *simnet.Network
	h    *simnet.Host
	d    simnet.Driver
	made map[string]uring.File
}

const (
	piece = 256
	slow  = time.Hour
)

func newRuled(t *testing.T, seed uint64) *ruled {
	r := &ruled{t: t, made: map[string]uring.File{}}
	r.n, r.h = diskHost(seed, simnet.DiskOptions{})
	r.d = r.h.Driver()
	return r
}

func (r *ruled) must(err error) {
	r.t.Helper()
	must(r.t, err)
}

func (r *ruled) open(path string, opt uring.FileOptions) uring.File {
	r.t.Helper()
	fd, err := r.h.Disk().Open(path, opt)
	r.must(err)
	f, err := r.d.AdoptFile(fd)
	r.must(err)
	return f
}

func (r *ruled) vec(text string) *uring.Vec {
	v, err := uring.NewVec(1)
	r.must(err)
	r.t.Cleanup(v.Free)
	var p []byte
	for _, letter := range []byte(text) {
		p = append(p, slices.Repeat([]byte{letter}, piece)...)
	}
	v.Append(p)
	return v
}

// end waits for the request that ends first, and returns its result.
func (r *ruled) end(_ uring.Op, err error) int32 {
	r.t.Helper()
	r.must(err)
	for range 100 {
		if got, _ := r.d.Wait(0); len(got) > 0 {
			return got[0].Res
		}
		advance(r.n)
	}
	r.t.Fatal("no request ends")
	return 0
}

// begin asks for a request and does not wait.
func (r *ruled) begin(_ uring.Op, err error) { r.t.Helper(); r.must(err) }

func (r *ruled) latency(d time.Duration) { r.h.Disk().Configure(simnet.DiskOptions{Latency: d}) }

// fail has the next request or change of names of a kind fail.
func (r *ruled) fail(kind uring.Kind) {
	r.h.Disk().Configure(simnet.DiskOptions{Fail: func(k uring.Kind, _ string) unix.Errno {
		if k != kind {
			return 0
		}
		r.latency(0)
		return unix.EIO
	}})
}

func (r *ruled) write(f uring.File, at int64, text string, durable bool) (uring.Op, error) {
	ask := uring.FileRequest{Kind: uring.KindWrite, Durable: durable, Vec: r.vec(text), Off: at * piece, User: 1}
	return r.d.AskFile(f, ask)
}

func (r *ruled) sync(f uring.File) (uring.Op, error) {
	return r.d.AskFile(f, uring.FileRequest{Kind: uring.KindSync, User: 1})
}

// file makes a file whose bytes are durable, and whose name is not.
func (r *ruled) file(path, text string) uring.File {
	r.t.Helper()
	f := r.open(path, uring.FileOptions{Write: true, Create: true, Exclusive: true})
	r.end(r.write(f, 0, text, false))
	r.end(r.sync(f))
	return f
}

// durable makes a file that is durable with its name.
func (r *ruled) durable(path, text string) uring.File {
	r.t.Helper()
	f := r.file(path, text)
	r.syncDir(path[:strings.LastIndex(path, "/")])
	return f
}

func (r *ruled) syncDir(dir string)     { r.t.Helper(); r.must(r.h.Disk().SyncDir(dir)) }
func (r *ruled) rename(from, to string) { r.t.Helper(); r.must(r.h.Disk().Rename(from, to)) }
func (r *ruled) remove(path string)     { r.t.Helper(); r.must(r.h.Disk().Remove(path)) }
func (r *ruled) makeDir(dir string)     { r.t.Helper(); r.must(r.h.Disk().MakeDir(dir)) }

// files is what the disk of a process that begins has, such as "a:11 b:".
func (r *ruled) files() string {
	r.t.Helper()
	r.d = r.h.Driver()
	k := r.h.Disk()
	k.Configure(simnet.DiskOptions{})
	var files []string
	for _, dir := range []string{"/d", "/e", "/f", "/n/m"} {
		names, _ := k.List(dir)
		for _, name := range names {
			fd, err := k.Open(dir+"/"+name, uring.FileOptions{})
			r.must(err)
			info, err := k.Stat(fd)
			r.must(err)
			p := make([]byte, info.Size)
			_, err = k.ReadAt(fd, p, 0)
			r.must(err)
			text := strings.TrimPrefix(dir, "/d") + name + ":"
			for at := 0; at < len(p); at += piece {
				text += strings.ReplaceAll(string(p[at]), "\x00", "0")
			}
			files = append(files, text)
		}
	}
	return strings.Join(files, " ")
}

// Each rule of a disk as everything that may be there behind a power cut, or behind the end
// of the process: no seed shows anything else, and each of them is shown by some. ext4 and xfs
// promise no less; they may leave a program fewer of these, as both write changes of names in
// order, and a name with a sync of its file. Other file systems do not.
// Matrix: KV-15
func TestTheDiskTakesEachLibertyThatFileSystemsHaveAndNoOther(t *testing.T) {
	const power, kill = true, false
	for _, row := range []struct {
		name string
		cut  bool   // the power, or the process is killed
		made string // files that are durable before
		do   func(r *ruled)
		want string
	}{
		// Names.
		{"a sync of a file does nothing for its name", power, "", func(r *ruled) { r.file("/d/a", "1") }, "|a:1"},
		{"a name does nothing for what is in its file", power, "a:", func(r *ruled) { r.end(r.write(r.made["a"], 0, "1", false)) }, "a:|a:1"},
		{"a name is durable behind a sync of its directory", power, "a:1", func(*ruled) {}, "a:1"},
		{"a sync of a directory is not one of others", power, "", func(r *ruled) {
			r.file("/d/a", "1")
			r.file("/e/b", "2")
			r.syncDir("/d")
		}, "a:1|a:1 /eb:2"},
		{"new names overtake each other", power, "", func(r *ruled) {
			r.file("/d/a", "1")
			r.file("/d/b", "2")
		}, "|a:1|b:2|a:1 b:2"},
		{"a removal overtakes a new name", power, "a:1", func(r *ruled) {
			r.file("/d/b", "2")
			r.remove("/d/a")
		}, "|a:1|b:2|a:1 b:2"},
		{"removals overtake each other", power, "a:1 b:2", func(r *ruled) {
			r.remove("/d/a")
			r.remove("/d/b")
		}, "|a:1|b:2|a:1 b:2"},
		{"a removal is durable behind a sync of its directory", power, "a:1", func(r *ruled) {
			r.remove("/d/a")
			r.syncDir("/d")
		}, ""},
		{"a rename over another file leaves one of them", power, "a:1 b:2", func(r *ruled) { r.rename("/d/a", "/d/b") }, "a:1 b:2|b:1"},
		{"a rename does nothing for what is in its file", power, "a:", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "1", false))
			r.rename("/d/a", "/d/b")
			r.syncDir("/d")
		}, "b:|b:1"},
		{"a rename between directories leaves the file in one of them", power, "a:1", func(r *ruled) { r.rename("/d/a", "/e/a") }, "a:1|/ea:1"},
		{"such a rename is durable behind a sync of the first directory", power, "a:1", func(r *ruled) {
			r.rename("/d/a", "/e/a")
			r.syncDir("/d")
		}, "/ea:1"},
		{"or of the second", power, "a:1", func(r *ruled) {
			r.rename("/d/a", "/e/a")
			r.syncDir("/e")
		}, "/ea:1"},
		{"changes of one name keep their order", power, "a:1", func(r *ruled) {
			r.rename("/d/a", "/d/b")
			r.file("/d/a", "2")
		}, "a:1|b:1|a:2 b:1"},
		{"and become durable in it", power, "a:1", func(r *ruled) {
			r.rename("/d/a", "/e/a")
			r.rename("/e/a", "/f/a")
			r.syncDir("/f")
		}, "/fa:1"},
		{"but not those behind them", power, "a:1", func(r *ruled) {
			r.rename("/d/a", "/e/a")
			r.rename("/e/a", "/f/a")
			r.syncDir("/d")
		}, "/ea:1|/fa:1"},
		{"a sync of a directory that fails makes nothing durable", power, "", func(r *ruled) {
			r.file("/d/a", "1")
			r.fail(uring.KindNone)
			_ = r.h.Disk().SyncDir("/d")
		}, "|a:1"},
		{"and the next one does", power, "", func(r *ruled) {
			r.file("/d/a", "1")
			r.fail(uring.KindNone)
			_ = r.h.Disk().SyncDir("/d")
			r.syncDir("/d")
		}, "a:1"},
		{"a change of names that fails does not happen", kill, "a:1", func(r *ruled) {
			r.fail(uring.KindNone)
			removed := r.h.Disk().Remove("/d/a")
			r.fail(uring.KindNone)
			renamed := r.h.Disk().Rename("/d/a", "/d/b")
			r.fail(uring.KindNone)
			made := r.h.Disk().MakeDir("/n/m")
			if removed == nil || renamed == nil || made == nil {
				r.t.Errorf("removed: %v, renamed: %v, made: %v", removed, renamed, made)
			}
		}, "a:1"},
		{"a directory needs a sync of the one that it is in", power, "", func(r *ruled) {
			r.makeDir("/n/m")
			r.durable("/n/m/a", "1")
			r.syncDir("/n")
		}, "|/n/ma:1"},
		{"and so does that one", power, "", func(r *ruled) {
			r.makeDir("/n/m")
			r.durable("/n/m/a", "1")
			r.syncDir("/n")
			r.syncDir("/")
		}, "/n/ma:1"},

		// Bytes.
		{"any sectors of a write", power, "a:1111", func(r *ruled) { r.end(r.write(r.made["a"], 1, "22", false)) }, "a:1111|a:1211|a:1121|a:1221"},
		{"any sectors of a write in flight", power, "a:1111", func(r *ruled) {
			r.latency(slow)
			r.begin(r.write(r.made["a"], 1, "22", true))
		}, "a:1111|a:1211|a:1121|a:1221"},
		{"writes overtake each other", power, "a:", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "1", false))
			r.end(r.write(r.made["a"], 2, "2", false))
		}, "a:|a:1|a:002|a:102"},
		{"a sync covers what has ended", power, "a:11", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "2", false))
			r.end(r.sync(r.made["a"]))
		}, "a:21"},
		{"a sync covers no write that ends while it is under way", power, "a:1111", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "2", false))
			r.latency(slow)
			r.begin(r.sync(r.made["a"]))
			r.latency(0)
			r.end(r.write(r.made["a"], 2, "2", false))
			r.end(0, nil) // of the sync
		}, "a:2111|a:2121"},
		{"nor one that begins before it", power, "a:1111", func(r *ruled) {
			r.latency(time.Minute)
			r.begin(r.write(r.made["a"], 2, "2", false))
			r.latency(slow)
			r.begin(r.sync(r.made["a"]))
			r.end(0, nil)
			r.end(0, nil)
		}, "a:1111|a:1121"},
		{"a sync of a file is not one of others", power, "a:1 b:1", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "2", false))
			r.end(r.write(r.made["b"], 0, "2", false))
			r.end(r.sync(r.made["a"]))
		}, "a:2 b:1|a:2 b:2"},
		{"a durable write is not a sync", power, "a:1111", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "2", false))
			r.end(r.write(r.made["a"], 2, "2", true))
		}, "a:1121|a:2121"},
		{"a durable write has what is below it, and nothing beside it", power, "a:111111", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "222222", false))
			r.end(r.write(r.made["a"], 3, "3", true))
		}, "a:112311|a:222311|a:112322|a:222322"},
		{"a sync that fails has lost what it was to cover, for good", power, "a:1111", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "2", false))
			r.fail(uring.KindSync)
			r.end(r.sync(r.made["a"]))
			r.end(r.write(r.made["a"], 2, "2", false))
			r.end(r.sync(r.made["a"]))
			if c := r.h.Disk().Counts(); c.Dropped != 1 || c.Errors != 1 {
				r.t.Errorf("%+v", c)
			}
		}, "a:1121"},
		{"it is read until then", kill, "a:1111", func(r *ruled) {
			r.end(r.write(r.made["a"], 0, "2", false))
			r.fail(uring.KindSync)
			r.end(r.sync(r.made["a"]))
		}, "a:2111"},
		{"any sectors of a write that fails", kill, "a:1111", func(r *ruled) {
			r.fail(uring.KindWrite)
			r.end(r.write(r.made["a"], 1, "22", true))
		}, "a:1111|a:1211|a:1121|a:1221"},
		{"any sectors of a write that is cancelled", kill, "a:1111", func(r *ruled) {
			r.latency(slow)
			op, err := r.write(r.made["a"], 1, "22", false)
			r.must(err)
			for r.h.Disk().InFlight() > 0 {
				r.d.Cancel(op)
			}
		}, "a:1111|a:1211|a:1121|a:1221"},
		{"a file is cut, or not", power, "a:1111", func(r *ruled) { r.must(r.h.Disk().Truncate(r.made["a"].FD(), 2*piece)) }, "a:1111|a:11"},
		{"a cut is durable behind a sync", power, "a:1111", func(r *ruled) {
			r.must(r.h.Disk().Truncate(r.made["a"].FD(), 2*piece))
			r.end(r.sync(r.made["a"]))
		}, "a:11"},
		{"what a durable cut has cut off is never written", power, "a:11", func(r *ruled) {
			r.end(r.write(r.made["a"], 2, "2222", false))
			r.must(r.h.Disk().Truncate(r.made["a"].FD(), 5*piece))
			r.end(r.write(r.made["a"], 0, "3", true))
		}, "a:31000|a:31220|a:31002|a:31222"},
		{"any length of a reservation in flight", power, "a:1", func(r *ruled) {
			r.latency(slow)
			r.begin(r.d.AskFile(r.made["a"], uring.FileRequest{Kind: uring.KindAllocate, Length: 2 * piece, User: 1}))
		}, "a:1|a:10"},

		// The end of a process.
		{"a process that is killed loses nothing that has ended", kill, "", func(r *ruled) {
			r.makeDir("/n/m")
			if r.h.Disk().Remove("/n/m") == nil || r.h.Disk().Rename("/n/m", "/n/o") == nil {
				r.t.Error("a directory does not stay where it is")
			}
			r.file("/n/m/b", "1")
			f := r.file("/d/a", "1")
			r.rename("/d/a", "/d/b")
			r.end(r.write(f, 0, "2", false))
		}, "b:2 /n/mb:1"},
		{"of what is in flight any part is done", kill, "a:1111", func(r *ruled) {
			r.latency(slow)
			r.begin(r.write(r.made["a"], 1, "22", false))
			r.h.Die(false)
			if n := r.h.Disk().InFlight(); n != 0 {
				r.t.Errorf("%d requests are in flight", n)
			}
		}, "a:1111|a:1211|a:1121|a:1221"},
	} {
		t.Run(row.name, func(t *testing.T) {
			want, seen := strings.Split(row.want, "|"), map[string]int{}
			for seed := range uint64(100) {
				r := newRuled(t, seed)
				for _, file := range strings.Fields(row.made) {
					name, text, _ := strings.Cut(file, ":")
					r.made[name] = r.durable("/d/"+name, text)
				}
				row.do(r)
				r.h.Die(row.cut)
				r.h.Revive()
				seen[r.files()]++
			}
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
				t.Errorf("behind it there is %s, want %q", fmt.Sprint(seen), want)
			}
		})
	}
}

// Matrix: KV-09
func TestWhatIsLeftOfADeadProcessReachesTheDiskNoMore(t *testing.T) {
	for _, silent := range []bool{false, true} {
		r := newRuled(t, 1)
		r.durable("/d/f", "1")
		k := r.h.Disk()
		r.h.Die(silent)
		_, opened := k.Open("/d/g", uring.FileOptions{Write: true, Create: true})
		for what, err := range map[string]error{
			"open": opened, "rename": k.Rename("/d/f", "/d/g"), "remove": k.Remove("/d/f"), "sync": k.SyncDir("/d"), "make": k.MakeDir("/e"),
		} {
			if !errors.Is(err, unix.EIO) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := r.files(); got != "f:1" {
			t.Errorf("the next process has %s", got)
		}
	}
}

// Matrix: KV-09
func TestAProcessStopsBetweenTwoChangesOfNames(t *testing.T) {
	r := newRuled(t, 1)
	f, k := r.durable("/d/f", "1"), r.h.Disk()
	k.Configure(simnet.DiskOptions{StopAt: 2})
	renamed, removed := k.Rename("/d/f", "/d/g"), k.Remove("/d/g")
	if renamed != nil || !errors.Is(removed, unix.EIO) || !errors.Is(k.SyncDir("/d"), unix.EIO) {
		t.Errorf("rename: %v, remove: %v", renamed, removed)
	}
	if res := r.end(r.write(f, 0, "2", false)); res != -int32(unix.EIO) {
		t.Errorf("a write behind the end: %d", res)
	}
	r.h.Die(false)
	if got := r.files(); got != "g:1" || k.Remove("/d/g") != nil || k.Counts().Stops != 1 {
		t.Errorf("the next process has %s, %+v", got, k.Counts())
	}
}

func TestDiskFaultsAreSeen(t *testing.T) {
	r := newRuled(t, 1)
	f, k := r.durable("/d/f", "1111"), r.h.Disk()
	k.Configure(simnet.DiskOptions{Room: 4 * piece})
	if res := r.end(r.write(f, 4, "1", false)); res != -int32(unix.ENOSPC) {
		t.Errorf("a write to a full disk: %d", res)
	}
	if res := r.end(r.write(f, 0, "2", false)); res != piece {
		t.Errorf("an overwrite on a full disk: %d", res)
	}
	if got := r.files(); !k.Flip("/d/f", 3*piece, 3) || got != "f:2111" || r.files() != "f:2119" {
		t.Errorf("no bit has flipped: %s, %s", got, r.files())
	}
	k.Configure(simnet.DiskOptions{ErrorEvery: 2})
	failures := 0
	for range 100 {
		if k.SyncDir("/d") != nil {
			failures++
		}
	}
	if failures < 20 || failures > 80 || k.Counts().Errors != failures {
		t.Errorf("%d of 100 fail", failures)
	}
}

func TestRequestsOvertakeEachOther(t *testing.T) {
	r := newRuled(t, 1)
	f := r.durable("/d/f", "1")
	r.h.Disk().Configure(simnet.DiskOptions{Jitter: time.Second})
	for user := range uint64(20) {
		r.begin(r.d.AskFile(f, uring.FileRequest{Kind: uring.KindSync, User: user}))
	}
	var order []uint64
	for len(order) < 20 {
		advance(r.n)
		got, _ := r.d.Wait(0)
		for _, c := range got {
			order = append(order, c.User)
		}
	}
	if slices.IsSorted(order) {
		t.Error("they end in the order in which they were asked for")
	}
}

// Matrix: ST-01
func TestFilesKeepTheContract(t *testing.T) {
	for _, direct := range []uring.DirectMode{uring.Buffered, uring.Direct} {
		t.Run(fmt.Sprint(direct), func(t *testing.T) {
			drivertest.Files(t, func(*testing.T) *drivertest.Bed {
				n, h := diskHost(3, simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond})
				return &drivertest.Bed{
					Driver: h.Driver(), Disk: h.Disk(), Dir: "/data", Direct: direct,
					Step: func() { advance(n) },
				}
			})
		})
	}
}
