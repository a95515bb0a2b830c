//go:build !epoll

package uring

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Matrix: ST-06
func TestAPieceIsFoundInTheOneAreaThatHasAllOfIt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		table := &registered{}
		at, areas := uintptr(1), map[uintptr]uint16{} // by each address
		for place := range uint16(rng.IntN(20)) {
			at += uintptr(rng.IntN(3)) // 0: it is the neighbour of the one before
			to := at + 1 + uintptr(rng.IntN(5))
			table.areas = append(table.areas, fixedArea{from: at, to: to, place: place})
			for ; at < to; at++ {
				areas[at] = place
			}
		}
		for from := range at + 3 {
			for size := uintptr(1); size < 8; size++ {
				place, want := areas[from]
				last, end := areas[from+size-1]
				want = want && end && last == place
				got, ok := table.place(&iovec{base: from, len: size})
				if ok != want || ok && got != place {
					t.Fatalf("%+v: %d bytes at %d: place %d, %v", table.areas, size, from, got, ok)
				}
			}
		}
	}
	if _, ok := (*registered)(nil).place(&iovec{base: 1, len: 1}); ok {
		t.Error("a ring without registered memory has some")
	}
}

// fixedBed is a ring with a file that has direct I/O.
func fixedBed(t *testing.T, cfg Config) (*ringDriver, File) {
	t.Helper()
	d := newTestRing(t, cfg)
	if d.fixed == nil {
		t.Skip("this kernel registers no memory")
	}
	fd, err := Host().Open(t.TempDir()+"/f", FileOptions{Write: true, Create: true, Direct: Direct})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this file system has no direct I/O")
	}
	must(t, err)
	f, err := d.AdoptFile(fd)
	must(t, err)
	return d, f
}

func mapped(t *testing.T, n int) *Memory {
	t.Helper()
	m, err := Map(n)
	must(t, err)
	return m
}

// transferred makes one request on all of m, and returns its result.
func transferred(t *testing.T, d *ringDriver, f File, kind Kind, m *Memory) int32 {
	t.Helper()
	_, err := d.AskFile(f, FileRequest{Kind: kind, Vec: listOf(t, m.Bytes()), User: 1})
	must(t, err)
	got, err := d.Wait(-1)
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	return got[0].Res
}

// Direct I/O on registered memory uses it; what is not registered, or not any more, and
// what goes through the page cache, does not.
// Matrix: ST-06
func TestDirectIOUsesRegisteredMemory(t *testing.T) {
	d, f := fixedBed(t, Config{})
	m, other := mapped(t, 8192), mapped(t, 8192)
	used := func(kind Kind, m *Memory, want uint64) {
		t.Helper()
		before := d.stats.Registered
		if res := transferred(t, d, f, kind, m); res != 8192 || d.stats.Registered-before != want {
			t.Errorf("result %d, %d requests used registered memory, want %d", res, d.stats.Registered-before, want)
		}
	}
	used(KindWrite, m, 0)
	must(t, d.RegisterMemory(m))
	used(KindWrite, m, 1)
	used(KindRead, m, 1)
	used(KindRead, other, 0)
	direct := f
	f.align = Alignment{} // as a file that was opened without
	used(KindRead, m, 0)
	f = direct
	d.UnregisterMemory(m)
	used(KindRead, m, 0)
	for _, m := range []*Memory{m, other} {
		must(t, m.Unmap())
	}
}

// The bounds of a ring are kept, in bytes and in places, and what has been given back can be used
// again.
func TestRegisteredMemoryIsBounded(t *testing.T) {
	for _, bytes := range []int64{3 << 12, 0} {
		d, f := fixedBed(t, Tuned(Config{}, tuning{RegisteredBytes: bytes}))
		spare := d.fixed.free
		if bytes == 0 {
			d.fixed.free, spare = spare[:3], spare[3:] // others may have locked the rest
		} else {
			spare = nil
		}
		var all []*Memory
		for i := range 5 {
			m := mapped(t, 1<<12)
			all = append(all, m)
			if err := d.RegisterMemory(m); (err != nil) != (i >= 3) || errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("piece %d: %v", i, err)
			}
			if res := transferred(t, d, f, KindWrite, m); res != 1<<12 {
				t.Errorf("piece %d: %d", i, res)
			}
		}
		d.UnregisterMemory(all[1])
		if err := d.RegisterMemory(all[4]); err != nil {
			t.Errorf("behind a piece that was given back: %v", err)
		}
		if err := d.RegisterMemory(all[3]); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("beyond the bound: %v", err)
		}
		for _, m := range all {
			d.UnregisterMemory(m)
			must(t, m.Unmap())
		}
		if d.fixed.bytes != 0 || len(d.fixed.free)+len(spare) != fixedPlaces || len(d.fixed.areas) != 0 {
			t.Errorf("%d bytes, %d places are free", d.fixed.bytes, len(d.fixed.free))
		}
	}
}

// A limit on locked memory costs nothing but the advantage.
// Matrix: ST-06
func TestALimitOnLockedMemoryLeavesRequestsAsTheyWere(t *testing.T) {
	ended := make(chan struct{})
	go func() { // its thread, which loses a capability, ends with it
		defer close(ended)
		runtime.LockOSThread()
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before) }()
		if err := withoutCapability(unix.CAP_IPC_LOCK); err != nil {
			t.Error(err)
			return
		}
		const limit = 1 << 20
		if most := fixedByDefault(); before.Cur != unix.RLIM_INFINITY && most > int64(before.Cur/lockedShare) {
			t.Errorf("a ring registers %d of the %d bytes that all share", most, before.Cur)
		}
		if before.Max == unix.RLIM_INFINITY || before.Max >= 8*limit { // for the ring itself
			_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 8 * limit, Max: before.Max})
		}
		fillLimit(t, limit, before.Max)
	}()
	<-ended
}

// fillLimit registers more than the limit has room for.
func fillLimit(t *testing.T, limit int, most uint64) {
	drv, err := openRing(Tuned(Config{}, tuning{RegisteredBytes: 64 << 20}))
	if err != nil {
		t.Error(err)
		return
	}
	d := drv.(*ringDriver)
	defer func() {
		if err := d.CloseDriver(); err != nil {
			t.Error(err)
		}
	}()
	if d.fixed == nil {
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: uint64(limit), Max: most}); err != nil {
		t.Error(err)
		return
	}
	var all []*Memory
	refused := 0
	for range 20 {
		m, err := Map(limit / 16)
		if err != nil {
			t.Error(err)
			return
		}
		all = append(all, m)
		calls := d.stats.Syscalls
		switch err := d.RegisterMemory(m); {
		case err == nil && refused > 0:
			t.Error("more is registered behind a refusal")
		case err != nil && (!errors.Is(err, unix.ENOMEM) || errors.Is(err, errors.ErrUnsupported)):
			t.Errorf("refused with %v", err)
		case err != nil:
			if refused++; refused > 1 && d.stats.Syscalls != calls {
				t.Error("the kernel is asked again and again")
			}
		}
	}
	if refused == 0 {
		t.Error("the limit is none")
	}
	for i, m := range all {
		d.UnregisterMemory(m)
		if i > 0 || len(d.fixed.areas) == 0 {
			continue
		}
		calls := d.stats.Syscalls
		if _ = d.RegisterMemory(all[len(all)-1]); d.stats.Syscalls == calls { // others may take the room
			t.Error("the kernel is not asked behind a piece that was given back")
		}
	}
	for _, m := range all {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
}

// withoutCapability takes one away from this thread.
func withoutCapability(bit int) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&h, &data[0]); err != nil {
		return err
	}
	data[bit/32].Effective &^= 1 << (bit % 32)
	return unix.Capset(&h, &data[0])
}

// The kernel has one thread for the writes to a file through the page cache. A durable one
// that is not alone does not hold it while it waits for the disk.
// Matrix: ST-14
func TestADurableWriteThatIsNotAloneIsAWriteAndASyncOfItsBytes(t *testing.T) {
	d := newTestRing(t, Config{})
	fd, err := Host().Open(filepath.Join(t.TempDir(), "f"), FileOptions{Write: true, Create: true})
	must(t, err)
	f, err := d.AdoptFile(fd)
	must(t, err)
	write := func(text string, off int64, user uint64) *operation {
		t.Helper()
		op, err := d.AskFile(f, FileRequest{Kind: KindWrite, Vec: listOf(t, []byte(text)), Off: off, Durable: true, User: user})
		must(t, err)
		return d.ops.get(op)
	}
	asks := func(o *operation) (e sqe) {
		d.fillFile(&e, o)
		return e
	}
	if e := asks(write("one", 0, 1)); e.opcode != opcodeWrite || e.opFlags != unix.RWF_DSYNC {
		t.Errorf("alone it is %d with %x, want a write (%d) with RWF_DSYNC", e.opcode, e.opFlags, opcodeWrite)
	}
	o := write("two..", 3, 2)
	if e := asks(o); e.opcode != opcodeWrite || e.opFlags != 0 || e.off != 3 {
		t.Errorf("beside another it is %d with %x at %d, want a write (%d) at 3", e.opcode, e.opFlags, e.off, opcodeWrite)
	}
	again := *o
	if _, more := again.progress(5); !more {
		t.Error("it ends with its write")
	}
	if e := asks(&again); e.opcode != opcodeFsync || e.opFlags != fsyncData || e.off != 3 || e.len != 5 {
		t.Errorf("then it is %d with %x of %d bytes at %d, want a data sync (%d) of 5 at 3", e.opcode, e.opFlags, e.len, e.off, opcodeFsync)
	}
	o.vec.rewind()
	write("", 8, 3)
	op, err := d.AskFile(f, FileRequest{Kind: KindSync, Off: 4, Length: 1, Durable: true, User: 4})
	must(t, err)
	if e := asks(d.ops.get(op)); e.opcode != opcodeFsync || e.opFlags != fsyncData || e.off != 0 || e.len != 0 {
		t.Errorf("a sync is %d with %x of %d bytes at %d, want a data sync (%d) of the file", e.opcode, e.opFlags, e.len, e.off, opcodeFsync)
	}
	for _, r := range []FileRequest{{Kind: KindRead, Vec: listOf(t, make([]byte, 9)), Off: 100, User: 5}, {Kind: KindAllocate, Length: 8, User: 6}} {
		r.Durable = true
		op, err := d.AskFile(f, r)
		must(t, err)
		if d.ops.get(op).bits&opThenSync != 0 {
			t.Errorf("a sync follows request %d, which writes nothing", r.User)
		}
	}
	for want := map[uint64]int32{1: 3, 2: 5, 3: 0, 4: 0, 5: 0, 6: 0}; len(want) > 0; {
		got, err := d.Wait(-1)
		must(t, err)
		for _, c := range got {
			if res, ok := want[c.User]; !ok || c.Res != res {
				t.Errorf("request %d ends with %d, want %d", c.User, c.Res, res)
			}
			delete(want, c.User)
		}
	}
	var got [9]byte
	if n, err := unix.Pread(fd, got[:], 0); err != nil || string(got[:n]) != "onetwo.." {
		t.Errorf("the file has %q, %v", got[:n], err)
	}
}
