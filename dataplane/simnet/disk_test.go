package simnet_test

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
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

// diskRig is a host with one file, whose requests are waited for.
type diskRig struct {
	t *testing.T
	n *simnet.Network
	h *simnet.Host
	d *simnet.Driver
	f uring.File
	v *uring.Vec
}

func newDiskRig(t *testing.T, seed uint64, opt simnet.DiskOptions) *diskRig {
	r := &diskRig{t: t}
	r.n, r.h = diskHost(seed, opt)
	var err error
	if r.v, err = uring.NewVec(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.v.Free)
	r.open()
	must(t, r.h.Disk().SyncDir("/data"))
	return r
}

func (r *diskRig) open() {
	r.t.Helper()
	r.d = r.h.Driver()
	fd, err := r.h.Disk().Open("/data/f", uring.FileOptions{Write: true, Create: true})
	if err == nil {
		r.f, err = r.d.AdoptFile(fd)
	}
	must(r.t, err)
}

// end is the answer to the one request in flight.
func (r *diskRig) end(_ uring.Op, err error) int32 {
	r.t.Helper()
	must(r.t, err)
	for range 100 {
		if got, _ := r.d.Wait(0); len(got) > 0 {
			return got[0].Res
		}
		advance(r.n)
	}
	r.t.Fatal("no answer")
	return 0
}

func (r *diskRig) write(off int64, b byte, n int, flags uring.WriteFlags) int32 {
	r.t.Helper()
	r.v.Reset()
	r.v.Append(bytes.Repeat([]byte{b}, n))
	return r.end(r.d.WriteFile(r.f, r.v, off, 1, flags))
}

func (r *diskRig) sync() int32 { return r.end(r.d.SyncFile(r.f, 1, 0)) }

func (r *diskRig) read(off int64, n int) []byte {
	r.t.Helper()
	p := make([]byte, n)
	r.v.Reset()
	r.v.Append(p)
	return p[:r.end(r.d.ReadFile(r.f, r.v, off, 1))]
}

func TestAPowerCutKeepsWhatWasSynced(t *testing.T) {
	const block = 4096
	fates := map[string]int{}
	for seed := range uint64(200) {
		r := newDiskRig(t, seed, simnet.DiskOptions{Jitter: time.Millisecond})
		r.write(0, 'a', block, 0)
		if r.sync() != 0 {
			t.Fatal("the sync failed")
		}
		r.write(block, 'b', block, uring.WriteDurable)
		r.write(2*block, 'c', block, uring.WriteThenSync)
		r.write(0, 'A', block, 0)       // not durable, over what is
		r.write(3*block, 'd', block, 0) // not durable
		old := r.read(0, 5*block)
		if len(old) != 4*block || old[0] != 'A' || old[3*block] != 'd' {
			t.Fatal("what was written is not read")
		}
		r.h.Die(true)
		r.h.Revive()
		r.open()
		now := r.read(0, 5*block)
		if len(now) < 3*block || !bytes.Equal(now[block:3*block], old[block:3*block]) {
			t.Fatalf("seed %d: durable bytes are lost", seed)
		}
		olds, news := bytes.Count(now[:block], []byte("a")), bytes.Count(now[:block], []byte("A"))
		switch {
		case olds+news != block || olds%512 != 0:
			t.Fatalf("seed %d: neither the old nor the new sectors", seed)
		case olds == block:
			fates["lost"]++
		case news == block:
			fates["kept"]++
		default:
			fates["torn"]++
		}
	}
	if fates["lost"] < 20 || fates["kept"] < 20 || fates["torn"] < 20 {
		t.Errorf("fates %v", fates)
	}
}

// What is cut off was never to be written, also if it was asked for before.
func TestAFileThatWasCutDurablyDoesNotGrowWhenThePowerGoes(t *testing.T) {
	const block = 4096
	lost := 0
	for seed := range uint64(100) {
		r := newDiskRig(t, seed, simnet.DiskOptions{})
		r.write(512, 'a', 2*block, 0) // a part is cut off, and the rest not durable
		must(t, r.h.Disk().Truncate(r.f.FD(), block))
		r.write(0, 'b', 10, uring.WriteDurable)
		r.h.Die(true)
		r.h.Revive()
		r.open()
		got := r.read(0, 3*block)
		if len(got) != block || !bytes.Equal(got[:10], bytes.Repeat([]byte{'b'}, 10)) {
			t.Fatalf("seed %d: %d bytes are left, which begin with %q", seed, len(got), got[:min(10, len(got))])
		}
		if got[block-1] == 0 {
			lost++
		}
	}
	if lost == 0 || lost == 100 {
		t.Errorf("what was not durable is lost for %d seeds of 100", lost)
	}
}

func TestTheEndOfAProcessLosesNothingThatWasAnswered(t *testing.T) {
	r := newDiskRig(t, 1, simnet.DiskOptions{Latency: time.Millisecond})
	r.write(0, 'a', 4096, 0)
	r.v.Reset()
	r.v.Append(bytes.Repeat([]byte("b"), 4096))
	if _, err := r.d.WriteFile(r.f, r.v, 4096, 1, 0); err != nil {
		t.Fatal(err)
	}
	r.h.Die(false)
	if n := r.h.Disk().InFlight(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
	r.open()
	if got := r.read(0, 4096); !bytes.Equal(got, bytes.Repeat([]byte("a"), 4096)) {
		t.Error("bytes that were written are gone")
	}
}

// Matrix: KV-09
func TestWhatIsLeftOfADeadProcessReachesTheDiskNoMore(t *testing.T) {
	for _, silent := range []bool{false, true} {
		r := newDiskRig(t, 1, simnet.DiskOptions{})
		k := r.h.Disk()
		r.h.Die(silent)
		_, opened := k.Open("/data/g", uring.FileOptions{Write: true, Create: true})
		for what, err := range map[string]error{
			"open": opened, "rename": k.Rename("/data/f", "/data/g"), "remove": k.Remove("/data/f"), "sync": k.SyncDir("/data"),
		} {
			if !errors.Is(err, unix.EIO) {
				t.Errorf("%s: %v", what, err)
			}
		}
		r.open() // by the next process
		if names, err := k.List("/data"); err != nil || !slices.Equal(names, []string{"f"}) {
			t.Errorf("%v, %v", names, err)
		}
	}
}

// Matrix: KV-09
func TestAProcessStopsBetweenTwoChangesOfNames(t *testing.T) {
	r := newDiskRig(t, 1, simnet.DiskOptions{})
	k := r.h.Disk()
	k.Configure(simnet.DiskOptions{StopAt: 2})
	renamed, removed := k.Rename("/data/f", "/data/g"), k.Remove("/data/g")
	if renamed != nil || !errors.Is(removed, unix.EIO) || !errors.Is(k.SyncDir("/data"), unix.EIO) {
		t.Errorf("rename: %v, remove: %v", renamed, removed)
	}
	if res := r.write(0, 'a', 512, 0); res != -int32(unix.EIO) {
		t.Errorf("a write behind the end: %d", res)
	}
	r.h.Die(false)
	r.d = r.h.Driver() // another process
	names, err := k.List("/data")
	if err != nil || !slices.Equal(names, []string{"g"}) || k.Remove("/data/g") != nil || k.Counts().Stops != 1 {
		t.Errorf("%v, %v, %+v", names, err, k.Counts())
	}
}

func TestASyncThatFailsLosesWhatItWasToCover(t *testing.T) {
	fail := unix.Errno(0)
	r := newDiskRig(t, 1, simnet.DiskOptions{Fail: func(kind uring.Kind, _ string) unix.Errno {
		if kind == uring.KindSync {
			return fail
		}
		return 0
	}})
	r.write(0, 'a', 4096, 0)
	fail = unix.EIO
	if res := r.sync(); res != -int32(unix.EIO) {
		t.Fatalf("sync: %d", res)
	}
	fail = 0
	r.write(4096, 'b', 4096, 0)
	if res := r.sync(); res != 0 {
		t.Fatalf("the next sync: %d", res)
	}
	if got := r.read(0, 1); got[0] != 'a' {
		t.Error("it is not read any more")
	}
	r.h.Disk().Crash()
	r.open()
	if got := r.read(0, 8192); len(got) != 8192 || got[0] != 0 || got[4096] != 'b' {
		t.Errorf("a later sync has saved what was lost: %q %q", got[0], got[4096])
	}
	if c := r.h.Disk().Counts(); c.Dropped != 1 || c.Errors != 1 {
		t.Errorf("%+v", c)
	}
}

func TestNamesAreDurableAfterASyncOfTheirDirectory(t *testing.T) {
	_, h := diskHost(1, simnet.DiskOptions{})
	k := h.Disk()
	touch := func(path string) {
		fd, err := k.Open(path, uring.FileOptions{Write: true, Create: true})
		if err != nil || k.Close(fd) != nil {
			t.Fatal(err)
		}
	}
	touch("/data/durable")
	touch("/other/durable")
	_ = k.SyncDir("/data")
	_ = k.SyncDir("/other")
	all := []string{"durable", "x", "y"}
	seen := map[int]bool{}
	for range 50 {
		touch("/data/x")
		touch("/data/y")
		k.Crash()
		names, err := k.List("/data")
		if err != nil || !slices.Equal(names, all[:len(names)]) || len(names) == 0 {
			t.Fatalf("%v, %v: not the first few in order", names, err)
		}
		seen[len(names)] = true
		_ = k.Remove("/data/x")
		_ = k.Remove("/data/y")
		_ = k.SyncDir("/data")
	}
	if len(seen) != 3 {
		t.Errorf("numbers of names that were left: %v", seen)
	}
}

func TestDiskFaultsAreSeen(t *testing.T) {
	r := newDiskRig(t, 1, simnet.DiskOptions{Room: 8192})
	r.write(0, 'a', 8192, uring.WriteDurable)
	if res := r.write(8192, 'a', 512, 0); res != -int32(unix.ENOSPC) {
		t.Errorf("a write to a full disk: %d", res)
	}
	if res := r.write(0, 'b', 512, 0); res != 512 {
		t.Errorf("an overwrite on a full disk: %d", res)
	}
	if !r.h.Disk().Flip("/data/f", 4096, 3) || r.read(4096, 1)[0] != 'a'^8 {
		t.Error("no bit has flipped")
	}
	r.h.Disk().Configure(simnet.DiskOptions{ErrorEvery: 2})
	failures := 0
	for range 100 {
		if r.write(0, 'a', 512, 0) == -int32(unix.EIO) {
			failures++
		}
	}
	if failures < 20 || failures > 80 || r.h.Disk().Counts().Errors != failures {
		t.Errorf("%d of 100 fail", failures)
	}
}

func TestRequestsOvertakeEachOther(t *testing.T) {
	r := newDiskRig(t, 1, simnet.DiskOptions{Jitter: time.Second})
	var order []uint64
	for user := range uint64(20) {
		v, err := uring.NewVec(1)
		must(t, err)
		defer v.Free()
		v.Append(make([]byte, 512))
		if _, err := r.d.WriteFile(r.f, v, int64(user)*512, user, 0); err != nil {
			t.Fatal(err)
		}
	}
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
