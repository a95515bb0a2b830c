package uring

import (
	"errors"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread that has begun knows a file by its number, which nobody else may get meanwhile;
// and what it was interrupted in was cancelled.
func TestAFileKeepsItsNumberWhileAThreadHasIt(t *testing.T) {
	drv, err := openEpoll(Config{}, "")
	must(t, err)
	d := drv.(*epollDriver)
	d.disk.pool.limit = 0 // this test is the thread
	fd, err := Host().Open(t.TempDir()+"/f", FileOptions{Write: true, Create: true})
	must(t, err)
	f, err := d.AdoptFile(fd)
	must(t, err)
	begun, err := d.AskFile(f, FileRequest{Kind: KindSync, User: 1})
	must(t, err)
	_, err = d.AskFile(f, FileRequest{Kind: KindSync, User: 2})
	must(t, err)
	j := d.ops.get(begun).file.job
	j.state.Store(jobBegun)
	d.CloseFile(f)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("the number is free already: %v", err)
	}
	expect := func(user uint64) {
		t.Helper()
		got, err := d.Wait(0)
		if err != nil || len(got) != 1 || got[0].User != user || got[0].Errno() != unix.ECANCELED {
			t.Errorf("%+v, %v; want that %d was cancelled", got, err, user)
		}
	}
	expect(2)
	d.disk.pool.line = jobLine{}
	d.disk.pool.out = 1
	j.res, j.next, j.ends, d.disk.pool.done = -int64(unix.EINTR), nil, true, j
	d.disk.ended.wake()
	expect(1)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the file is still open")
	}
	again, err := Host().Open(t.TempDir()+"/g", FileOptions{Create: true})
	if err == nil && again != fd {
		err = errors.Join(unix.Dup3(again, fd, unix.O_CLOEXEC), unix.Close(again))
	}
	must(t, err)
	g, err := d.AdoptFile(fd) // another file with this number
	must(t, err)
	if _, err := d.AskFile(f, FileRequest{Kind: KindSync, User: 3}); !errors.Is(err, unix.EBADF) {
		t.Errorf("a request on a file that was closed: %v", err)
	}
	d.CloseFile(f)
	if !d.isOpen(g.sock) {
		t.Error("the other file is closed in its place")
	}
	must(t, d.CloseDriver())
}

// poolBed is a driver whose pool hands nothing out until it is told to, with two files.
type poolBed struct {
	t     *testing.T
	d     *epollDriver
	files [2]File
	ops   []Op
}

func newPoolBed(t *testing.T) *poolBed {
	drv, err := openEpoll(Config{}, "")
	must(t, err)
	b := &poolBed{t: t, d: drv.(*epollDriver)}
	t.Cleanup(func() { must(t, drv.CloseDriver()) })
	for i := range b.files {
		fd, err := Host().Open(filepath.Join(t.TempDir(), "f"), FileOptions{Write: true, Create: true})
		must(t, err)
		b.files[i], err = drv.AdoptFile(fd)
		must(t, err)
		b.d.states[fd].refused = [2]bool{true, true} // nothing is done at once
	}
	b.d.disk.pool.limit = 0
	return b
}

// ask asks for a write of one byte at off, or a read, or a durable write.
func (b *poolBed) ask(file int, kind Kind, off int64, durable bool) {
	b.t.Helper()
	r := FileRequest{Kind: kind, Vec: listOf(b.t, []byte{byte(off)}), Off: off, Durable: durable, User: uint64(len(b.ops))}
	op, err := b.d.AskFile(b.files[file], r)
	must(b.t, err)
	b.ops = append(b.ops, op)
}

// runs hands out what is in line, to this test, and returns how long each run is.
func (b *poolBed) runs() (lengths []int, runs []*fileJob) {
	p := &b.d.disk.pool
	p.work = make(chan *fileJob, 100)
	p.limit, p.workers = 100, 100
	p.hand(&b.d.disk.ended)
	for p.limit = 0; len(p.work) > 0; {
		j := <-p.work
		runs, lengths = append(runs, j), append(lengths, 0)
		for ; j != nil; j = j.next {
			lengths[len(lengths)-1]++
		}
	}
	return lengths, runs
}

// carryOut is a thread that does these runs.
func (b *poolBed) carryOut(runs []*fileJob) (users []uint64) {
	b.t.Helper()
	work := make(chan *fileJob, len(runs))
	for _, r := range runs {
		work <- r
	}
	close(work)
	b.d.disk.pool.serve(work, &b.d.disk.ended)
	got, err := b.d.Wait(0)
	must(b.t, err)
	for _, c := range got {
		if c.Res != 1 {
			b.t.Errorf("request %d: %v", c.User, c.Errno())
		}
		users = append(users, c.User)
	}
	return users
}

// Matrix: ST-13
func TestOneThreadDoesTheWritesOfAFile(t *testing.T) {
	b := newPoolBed(t)
	for i := range int64(maxRun + 10) {
		b.ask(0, KindWrite, i, false)
	}
	b.ask(1, KindWrite, 0, false)
	b.ask(0, KindRead, 0, false) // reads do not exclude each other
	b.d.states[b.files[0].FD()].refused = [2]bool{}
	calls := b.d.Stats().Syscalls
	b.ask(0, KindWrite, 0, true) // nor do the waits for durability
	if b.d.Stats().Syscalls != calls {
		t.Error("the page cache is asked to end a write that waits for durability")
	}
	lengths, runs := b.runs()
	if !slices.Equal(lengths, []int{maxRun, 1, 1, 1}) {
		t.Fatalf("runs of %v, want %d, 1, 1, 1", lengths, maxRun)
	}
	b.ask(1, KindWrite, 1, false)
	if lengths, _ := b.runs(); len(lengths) > 0 {
		t.Fatalf("runs of %v while others have the files", lengths)
	}
	if users := b.carryOut(runs[:1]); len(users) != maxRun || users[0] != 0 || users[maxRun-1] != maxRun-1 {
		t.Errorf("%v have ended, want 0 to %d in order", users, maxRun-1)
	}
	rest, next := b.runs()
	if !slices.Equal(rest, []int{10}) {
		t.Fatalf("then runs of %v, want 10", rest)
	}
	if users := b.carryOut(append(next, runs[1:]...)); len(users) != 13 {
		t.Errorf("%d have ended, want 13", len(users))
	}
	if rest, next = b.runs(); !slices.Equal(rest, []int{1}) {
		t.Errorf("at last runs of %v, want 1", rest)
	}
	b.carryOut(next)
	if p := &b.d.disk.pool; p.out != 0 {
		t.Errorf("%d threads have something to do", p.out)
	}
}

// Matrix: ST-13
func TestCancelledWritesAreLeftOutOfARun(t *testing.T) {
	b := newPoolBed(t)
	for i := range int64(6) {
		b.ask(0, KindWrite, i, false)
	}
	cancelled := func(want ...uint64) {
		t.Helper()
		got, err := b.d.Wait(0)
		var users []uint64
		for _, c := range got {
			if c.Errno() != unix.ECANCELED {
				t.Errorf("request %d: %v", c.User, c.Errno())
			}
			users = append(users, c.User)
		}
		if err != nil || !slices.Equal(users, want) {
			t.Fatalf("%v were cancelled, %v; want %v", users, err, want)
		}
	}
	b.d.Cancel(b.ops[0]) // the first, which is in line
	b.d.Cancel(b.ops[2])
	cancelled(0, 2)
	lengths, runs := b.runs()
	if !slices.Equal(lengths, []int{5}) {
		t.Fatalf("runs of %v, want 5", lengths)
	}
	b.d.Cancel(b.ops[4]) // a thread has its run
	cancelled(4)
	if users := b.carryOut(runs); !slices.Equal(users, []uint64{1, 3, 5}) {
		t.Errorf("%v have ended, want 1, 3, 5", users)
	}
	var got [7]byte
	if n, err := unix.Pread(b.files[0].FD(), got[:], 0); err != nil || n != 6 || got != [7]byte{1: 1, 3: 3, 5: 5} {
		t.Errorf("the file has %v, %v", got[:n], err)
	}
	for range 3 {
		b.ask(0, KindWrite, 0, false)
	}
	for _, op := range b.ops[6:] {
		b.d.Cancel(op)
	}
	cancelled(6, 7, 8)
	if lengths, _ := b.runs(); len(lengths) > 0 {
		t.Errorf("runs of %v of what was cancelled", lengths)
	}
	b.ask(0, KindWrite, 0, false)
	if _, runs = b.runs(); len(runs) != 1 {
		t.Fatal("a write behind cancelled ones has no run")
	}
	b.carryOut(runs)
}

// The page cache may take a file's writes for long, until one has to wait: that one finds its
// place made.
func TestTheFirstWriteThatWaitsCostsNoAllocation(t *testing.T) {
	least := uint64(math.MaxUint64)
	for range 5 { // what else runs may allocate meanwhile
		b := newPoolBed(t)
		b.ops = make([]Op, 0, 2)
		b.ask(1, KindWrite, 0, true) // excludes no other; makes a job, and the places of operations
		_, runs := b.runs()
		b.carryOut(runs)
		v := listOf(t, []byte{1})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := b.d.AskFile(b.files[1], FileRequest{Kind: KindWrite, Vec: v, User: 1})
		runtime.ReadMemStats(&after)
		must(t, err)
		least = min(least, after.Mallocs-before.Mallocs)
		_, runs = b.runs()
		b.carryOut(runs)
	}
	if least != 0 {
		t.Errorf("%d allocations", least)
	}
}

// A request that AIO has, or a thread has begun with, is the kernel's, with its memory: it is asked
// for once, and a Cancel does not end it. A Cancel before that does.
func TestARequestThatTheKernelHasEndsWithItsAnswer(t *testing.T) {
	drv, err := openEpoll(Config{}, "")
	must(t, err)
	d := drv.(*epollDriver)
	defer func() { must(t, d.CloseDriver()) }()
	path := filepath.Join(t.TempDir(), "f")
	for _, write := range []bool{true, false} {
		fd, err := Host().Open(path, FileOptions{Write: write, Create: write, Direct: TryDirect})
		must(t, err)
		f, err := d.AdoptFile(fd)
		must(t, err)
		if d.disk.aio == nil {
			t.Skip("no direct I/O, or no Linux AIO")
		}
		r := FileRequest{Kind: KindSync, User: 1}
		parked, err := d.AskFile(f, r)
		must(t, err)
		d.Cancel(parked)
		if got, err := d.Wait(0); err != nil || len(got) != 1 || got[0].Op != parked || d.disk.aio.busy != 0 {
			t.Errorf("cancelled before it was asked for: %+v, %v", got, err)
		}
		if !write { // AIO refuses it, and a thread has it
			d.disk.pool.limit = 0
			r = FileRequest{Kind: KindWrite, Vec: listOf(t, []byte{1}), User: 1}
		}
		op, err := d.AskFile(f, r)
		must(t, err)
		d.submitAIO()
		j := d.ops.get(op).file.job
		if !write {
			j.state.Store(jobBegun)
		}
		if d.submitAIO(); len(d.disk.aio.waiting) > 0 || (d.disk.aio.busy == 1) != write {
			t.Errorf("%d requests wait, AIO has %d", len(d.disk.aio.waiting), d.disk.aio.busy)
		}
		if d.Cancel(op); d.ops.get(op) == nil {
			t.Error("it has ended, and the kernel has it")
		}
		if !write {
			j.state.Store(jobWaiting)
			d.disk.pool.limit = 1
			d.disk.pool.hand(&d.disk.ended)
		}
		if got, err := d.Wait(-1); err != nil || len(got) != 1 || got[0].User != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
