package loop

import (
	"errors"
	"io"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/uring"
)

const unit = 4096

// fileBed is a bed with an open file whose requests the test answers.
type fileBed struct {
	*bed
	f *File
}

// onRoom is told each time that a file has room again.
type onRoom func()

func (told onRoom) HasRoom(f *File) { told(); f.AwaitRoom(told) }

func newFileBed(t testing.TB, opt FileOptions, change func(*Config)) *fileBed {
	t.Helper()
	b := &fileBed{bed: newBed(t, func(cfg *Config, d *fakedriver.Driver) {
		cfg.Disk = d.Disk
		d.Disk.Align = uring.Alignment{Memory: 512, Offset: 512}
		if change != nil {
			change(cfg)
		}
	})}
	b.d.ParkFiles, b.d.RegisterErr = true, nil
	b.f = b.open("/f", opt)
	return b
}

// open makes a file of the core.
func (b *bed) open(path string, opt FileOptions) *File {
	b.t.Helper()
	opt.Write, opt.Create = true, true
	d, err := b.p.OpenFile(path, opt)
	must(b.t, err)
	f, err := b.c.AttachFile(d)
	must(b.t, err)
	return f
}

// noted is a FileOp that notes its end.
type noted struct {
	FileOp
	done int
}

// kept counts its releases.
type kept int

func (k *kept) Release() { *k++ }

func newRequest() *noted {
	r := new(noted)
	r.Done = func(*Core, *FileOp) { r.done++ }
	return r
}

func (b *fileBed) write(how Durability, off int64) *noted {
	b.t.Helper()
	r := newRequest()
	must(b.t, b.f.WriteAt(&r.FileOp, make([]byte, unit), off, how))
	return r
}

func (b *fileBed) read(off int64) *noted {
	b.t.Helper()
	r := newRequest()
	must(b.t, b.f.ReadAt(&r.FileOp, make([]byte, unit), off))
	return r
}

// parked are the requests of a kind that the driver has.
func (b *fileBed) parked(kind uring.Kind) (list []*fakedriver.Request) {
	for _, r := range b.d.Files {
		if r.Kind == kind {
			list = append(list, r)
		}
	}
	return list
}

// answer answers all of a kind, by doing them or with an errno.
func (b *fileBed) answer(kind uring.Kind, errno unix.Errno) {
	b.t.Helper()
	for _, r := range b.parked(kind) {
		if errno == 0 {
			b.d.Answer(r)
		} else {
			b.d.AnswerWith(r, -int32(errno))
		}
	}
	b.settle()
}

// ended wants the request to have ended with err when the core rests; nil: it succeeded.
func (b *fileBed) ended(r *noted, err error) {
	b.t.Helper()
	b.settle()
	if r.done != 1 || !errors.Is(r.Err, err) {
		b.t.Fatalf("ended %d times with %v, want once with %v", r.done, r.Err, err)
	}
}

func (b *fileBed) pending(rs ...*noted) {
	b.t.Helper()
	for i, r := range rs {
		if r.done != 0 {
			b.t.Fatalf("request %d has ended: %v", i, r.Err)
		}
	}
}

// A file that has ended holds nobody up, whatever the kernel still does with it.
// Matrix: ST-08
func TestTheEndOfAFileTellsWhoWaitsForRoom(t *testing.T) {
	b, room := newFileBed(t, FileOptions{Ops: 1}, nil), 0
	b.f.AwaitRoom(onRoom(func() { room++ }))
	w := b.write(Written, 0)
	if b.settle(); !b.f.Full() || room != 0 {
		t.Fatalf("full: %t, told %d times", b.f.Full(), room)
	}
	b.f.Close()
	if b.settle(); room != 1 || b.f.Full() {
		t.Errorf("full: %t, told %d times", b.f.Full(), room)
	}
	b.answer(uring.KindWrite, unix.ECANCELED)
	b.ended(w, ErrFileClosed)

	b, room = newFileBed(t, FileOptions{Ops: 1}, nil), 0
	for range 3 {
		b.f.AwaitRoom(onRoom(func() {
			switch room++; room {
			case 1:
				b.write(Written, 0) // it is full again
			case 2:
				b.f.Close() // tells the first
			}
		}))
	}
	b.write(Written, 0)
	if b.answer(uring.KindWrite, 0); room != 4 {
		t.Errorf("told %d times, when one of three who are told ends the file", room)
	}
}

func TestARequestEndsOnceAndNeverWithinTheCall(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil)
	b.d.ParkFiles = false
	w := b.write(Written, 0)
	b.pending(w)
	if err := b.f.WriteAt(&w.FileOp, nil, 0, Written); !errors.Is(err, errOpInUse) {
		t.Errorf("a request under way is asked again: %v", err)
	}
	b.ended(w, nil)
	if w.N != unit {
		t.Errorf("%d bytes", w.N)
	}
	r, kept := b.read(2048), kept(0)
	r.Keeps = &kept
	r.Done = func(*Core, *FileOp) { r.done += int(kept) } // it is released before
	b.settle()
	if r.done != 1 || r.Err != io.EOF || r.N != 2048 {
		t.Errorf("a read over the end: %d, %v", r.N, r.Err)
	}
	if err := b.f.ReadAt(&FileOp{}, nil, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("without Done: %v", err)
	}
	if err := b.f.ReadAt(&newRequest().FileOp, nil, -1); !errors.Is(err, unix.EINVAL) {
		t.Errorf("before the file: %v", err)
	}
}

func TestRequestsThatTheDriverRefusesEndLater(t *testing.T) {
	b := newFileBed(t, FileOptions{Ops: 1}, nil)
	b.d.FileErr = unix.ENOMEM
	w, r := b.write(Committed, 0), b.read(0)
	b.pending(w, r)
	b.ended(w, unix.ENOMEM)
	b.ended(r, unix.ENOMEM)
	b.d.FileErr = 0
	good := b.write(Committed, 0)
	b.settle()
	b.d.FileErr = unix.ENOMEM // of the sync
	b.answer(uring.KindWrite, 0)
	b.ended(good, ErrNotDurable)
	if b.f.Poisoned() != nil {
		t.Error("a sync that was never made poisons")
	}
	if n := len(b.c.entries) - len(b.c.freeSlot); n != 1 {
		t.Errorf("%d slots in use, want that of the file", n)
	}
	b.d.FileErr = 0
	room := 0
	b.f.AwaitRoom(onRoom(func() { room++ }))
	taken, refused := b.write(Written, 0), b.write(Written, 0)
	b.d.FileErr = unix.ENOMEM // of the second, which waited for the first
	b.answer(uring.KindWrite, 0)
	b.ended(taken, nil)
	b.ended(refused, unix.ENOMEM)
	if room != 1 || b.f.Full() {
		t.Errorf("told %d times that there is room", room)
	}
}

// Matrix: ST-08
func TestRequestsAreBoundedAndWaitInOrder(t *testing.T) {
	b := newFileBed(t, FileOptions{Ops: 4}, func(cfg *Config) { cfg.FileOps = 6 })
	g := b.open("/g", FileOptions{})
	room, under := 0, 0
	b.f.AwaitRoom(onRoom(func() { room++; under = b.f.under() }))
	var order []int
	var rs []*noted
	ask := func(f *File) {
		i, r := len(rs), newRequest()
		r.Done = func(*Core, *FileOp) { r.done++; order = append(order, i) }
		rs = append(rs, r)
		must(t, f.WriteAt(&r.FileOp, make([]byte, unit), int64(i), Written))
	}
	for range 8 {
		ask(b.f)
	}
	for range 8 {
		ask(g)
	}
	if n := len(b.d.Files); n != 6 {
		t.Fatalf("the driver has %d requests, want 6", n)
	}
	if st := b.c.Counts().Files; st.Waiting != 10 || st.Ops != 16 || !b.f.Full() || !g.Full() {
		t.Errorf("%+v", st)
	}
	for len(b.d.Files) > 0 {
		mine := 0
		for _, r := range b.d.Files {
			if r.File == b.f.sock {
				mine++
			}
		}
		if n := len(b.d.Files); n > 6 || mine > 4 {
			t.Fatalf("the driver has %d requests, %d of one file", n, mine)
		}
		b.d.Answer(b.d.Files[0])
		b.settle()
	}
	of := [2]int{-1, -1}
	for _, i := range order {
		if i < of[i/8] {
			t.Fatalf("order %v", order)
		}
		of[i/8] = i
	}
	if len(order) != 16 || room != 1 || under != 2 || b.f.Full() || b.c.fileBusy != 0 {
		t.Errorf("%d ended, told of room %d times, with %d under way, %d now", len(order), room, under, b.c.fileBusy)
	}
}

// Matrix: ST-08
func TestFilesTakeTurnsWhereTheCoreIsAtItsBound(t *testing.T) {
	b := newFileBed(t, FileOptions{}, func(cfg *Config) { cfg.FileOps = 2 })
	g, h := b.open("/g", FileOptions{}), b.open("/h", FileOptions{})
	done := map[*File]int{}
	for _, f := range []*File{b.f, g, h} {
		for range 10 {
			op := &FileOp{Done: func(*Core, *FileOp) { done[f]++ }}
			must(t, f.WriteAt(op, make([]byte, unit), 0, Written))
		}
	}
	for len(b.d.Files) > 0 && max(done[b.f], done[g], done[h]) < 10 {
		b.d.Answer(b.d.Files[0])
		b.settle()
	}
	if min(done[b.f], done[g], done[h]) < 7 {
		t.Errorf("the files have had %d, %d and %d requests when the first has had all 10", done[b.f], done[g], done[h])
	}
	for len(b.d.Files) > 0 {
		b.d.Answer(b.d.Files[0])
		b.settle()
	}
	if done[b.f] != 10 || done[g] != 10 || done[h] != 10 {
		t.Errorf("%d, %d and %d of 10 have ended", done[b.f], done[g], done[h])
	}
}

// underWay makes requests in all states: one that a sync covers, one that waits for a sync, two that
// the driver has, and one in line.
func (b *fileBed) underWay() (covered, waiting, flying, read, inLine *noted) {
	b.t.Helper()
	covered = b.write(Committed, 0)
	b.answer(uring.KindWrite, 0)
	waiting = b.write(Committed, 0)
	b.answer(uring.KindWrite, 0)
	return covered, waiting, b.write(Committed, 0), b.read(0), b.write(Written, 0)
}

// Matrix: ST-08
func TestClosingAFileEndsItsRequests(t *testing.T) {
	b := newFileBed(t, FileOptions{Ops: 2}, nil)
	covered, waiting, flying, read, inLine := b.underWay()
	b.f.Close()
	b.f.Close()
	b.pending(covered, waiting, flying, read, inLine)
	b.ended(inLine, ErrFileClosed)
	b.ended(waiting, ErrNotDurable)
	b.pending(covered, flying, read)
	for _, r := range b.d.Files {
		if !r.Cancelled {
			t.Error("a request is not cancelled")
		}
	}
	b.d.AnswerWith(b.parked(uring.KindSync)[0], 0)
	b.ended(covered, nil)
	if n := b.c.Counts().Files.Open; n != 1 {
		t.Errorf("%d files are open while the driver has requests", n)
	}
	b.answer(uring.KindRead, unix.ECANCELED)
	b.ended(read, ErrFileClosed)
	b.d.AnswerWith(b.parked(uring.KindWrite)[0], unit) // it came too late
	b.ended(flying, ErrNotDurable)
	if err := b.f.ReadAt(&newRequest().FileOp, nil, 0); !errors.Is(err, ErrFileClosed) {
		t.Errorf("a closed file is read: %v", err)
	}
	if st := b.c.Counts().Files; len(b.c.entries) != len(b.c.freeSlot) || st.Open != 0 || st.Ops != 0 || st.Waiting != 0 || st.Uncommitted != 0 {
		t.Errorf("%d slots of %d are free, %+v", len(b.c.freeSlot), len(b.c.entries), st)
	}
	if n := b.d.Disk.Opened(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// Matrix: ST-08
func TestTheEndOfACoreEndsItsRequests(t *testing.T) {
	for name, end := range map[string]func(b *fileBed){
		"closed": func(b *fileBed) { b.p.Close() },
		"failed": func(b *fileBed) {
			b.c.fail(unix.EBADR)
			if st, err := b.c.Stats(); err != nil || st.Failed != unix.EBADR.Error() { // it has failed, and has not ended
				b.t.Errorf("%+v, %v", st, err)
			}
			b.p.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFileBed(t, FileOptions{Ops: 2}, nil)
			covered, waiting, flying, read, inLine := b.underWay()
			end(b)
			for i, r := range []*noted{covered, waiting, flying, read, inLine} {
				if r.done != 1 || !errors.Is(r.Err, ErrStopped) {
					t.Errorf("request %d: %d ends, %v", i, r.done, r.Err)
				}
			}
			if n := b.d.Disk.Opened(); n != 0 {
				t.Errorf("%d files are open", n)
			}
		})
	}
}

func TestOpenFileTellsOnTheCore(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil)
	var got *File
	var errs []error
	opened := func(_ *Core, f *File, err error) {
		if f != nil {
			got = f
		}
		errs = append(errs, err)
	}
	b.c.OpenFile("/new", FileOptions{Write: true, Create: true}, opened)
	b.c.OpenFile("/none", FileOptions{}, opened)
	if len(errs) != 0 {
		t.Error("told within the call")
	}
	b.settle()
	if got == nil || len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], unix.ENOENT) || got.name != "/new" || got.Core() != b.c {
		t.Fatalf("%+v, %v", got, errs)
	}
	d, err := openFile(b.d.Disk, "/new", FileOptions{})
	must(t, err)
	must(t, d.Close())
	if err := d.Close(); !errors.Is(err, ErrFileClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := b.c.AttachFile(d); !errors.Is(err, ErrFileClosed) {
		t.Errorf("attached after its end: %v", err)
	}
	b.c.OpenFile("/new", FileOptions{}, opened)
	b.close()
	if len(errs) != 3 || !errors.Is(errs[2], ErrStopped) || b.d.Disk.Opened() != 0 {
		t.Errorf("behind the end of the core: %v, %d files are open", errs, b.d.Disk.Opened())
	}
}

// Matrix: KV-09
func TestOffloadedWorkComesBackToItsCore(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil)
	var course []string
	offload := func() {
		b.c.Offload(func() { course = append(course, "work") }, func(c *Core) {
			if c != b.c {
				t.Error("on another core")
			}
			course = append(course, "then")
		})
		course = append(course, "asked")
	}
	offload()
	b.settle()
	if !slices.Equal(course, []string{"work", "asked", "then"}) {
		t.Errorf("%v", course)
	}
	if b.p.Disk() == nil {
		t.Error("no disk")
	}
	offload()
	b.close()
	if len(course) != 6 || b.c.expected.Load() != 0 {
		t.Errorf("behind the end of the core: %v", course)
	}
}

func TestFileRequestsCostNoAllocation(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, nil)
	buf, err := b.c.Lend(unit)
	must(t, err)
	defer b.c.TakeBack(buf)
	p := buf.Bytes()
	w, r, s := newRequest(), newRequest(), newRequest()
	// The fake driver allocates its requests: one each.
	answers := 0
	run := func() {
		must(t, b.f.WriteAt(&w.FileOp, p, 0, Committed))
		must(t, b.f.ReadBuffer(&r.FileOp, 100, 7))
		must(t, b.f.Sync(&s.FileOp))
		for len(b.d.Files) > 0 || b.c.busy() {
			for len(b.d.Files) > 0 {
				b.d.AnswerWith(b.d.Files[0], map[uring.Kind]int32{uring.KindWrite: unit, uring.KindRead: 512}[b.d.Files[0].Kind])
				answers++
			}
			must(t, b.c.turn(false))
		}
	}
	run()
	const runs = 100
	answers = 0
	total := testing.AllocsPerRun(runs, run)
	if per := float64(answers) / (runs + 1); total > per && !invariants.Enabled {
		t.Errorf("%v allocations for %v requests of the fake driver", total, per)
	}
	if w.done != runs+2 || r.done != runs+2 || s.done != runs+2 {
		t.Error("requests are lost")
	}
}

func TestAReservationNeedsNoRoomAlthoughItsRequestHasReadABuffer(t *testing.T) {
	b := newFileBed(t, FileOptions{}, func(cfg *Config) { cfg.FileBytes = 1 << 20 })
	r := newRequest()
	must(t, b.f.ReadBuffer(&r.FileOp, unit, 0))
	b.settle()
	b.answer(uring.KindRead, unit)
	for range 4 { // the room is taken
		must(t, b.f.ReadBuffer(&newRequest().FileOp, 1<<20, 0))
	}
	must(t, b.f.Allocate(&r.FileOp, 0, 4<<20)) // more than all buffers may have
	b.settle()
	if n := len(b.parked(uring.KindAllocate)); n != 1 {
		t.Errorf("the driver has %d reservations", n)
	}
	b.answer(uring.KindAllocate, 0)
}

func TestMisalignedRequestsAreNamed(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, nil)
	buf, err := b.c.Lend(2 * unit)
	must(t, err)
	defer b.c.TakeBack(buf)
	p := buf.Bytes()[:unit]
	for _, c := range []struct {
		p    []byte
		off  int64
		want string
	}{
		{p, 100, "offset 100 is no multiple of 512 bytes"},
		{p[:1000], 0, "length 1000 is no multiple of 512 bytes"},
		{buf.Bytes()[8 : 8+unit], 0, "the memory must begin at a multiple of 512 bytes"},
	} {
		for _, err := range []error{b.f.WriteAt(&newRequest().FileOp, c.p, c.off, Written), b.f.ReadAt(&newRequest().FileOp, c.p, c.off)} {
			if !errors.Is(err, errAlign) || err.Error() != "/f: "+errAlign.Error()+": "+c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
	}
	if b.c.Counts().Files.Ops != 0 {
		t.Error("requests that were refused are counted")
	}
}

func TestABufferThatWasReadIntoGoesBackByItself(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, nil)
	b.d.ParkFiles = false
	w := newRequest()
	buf, err := b.c.Lend(2 * unit)
	must(t, err)
	copy(buf.Bytes()[1000:], "hello")
	must(t, b.f.WriteAt(&w.FileOp, buf.Bytes()[:2*unit], 0, Written))
	b.settle()
	b.c.TakeBack(buf)
	inUse := b.c.pool.inUse
	var taken *Buffer
	again := 0
	r := newRequest()
	r.Done = func(_ *Core, op *FileOp) {
		if r.done++; string(op.Data) != "hello" || op.Err != nil || op.N != 5 {
			t.Errorf("%q, %v", op.Data, op.Err)
		}
		switch {
		case again == 0:
			again++
			must(t, b.f.ReadBuffer(op, 5, 1000))
		case again == 2:
			taken = op.TakeBuffer()
		}
	}
	must(t, b.f.ReadBuffer(&r.FileOp, 5, 1000))
	b.settle()
	if r.done != 2 || b.c.pool.inUse != inUse || r.Data != nil {
		t.Fatalf("%d ends, %d bytes in use, %d before", r.done, b.c.pool.inUse, inUse)
	}
	again = 2
	must(t, b.f.ReadBuffer(&r.FileOp, 5, 1000))
	b.settle()
	if taken == nil || b.c.pool.inUse == inUse || !onPage(taken.Bytes()) {
		t.Fatal("the buffer that was taken has gone back, or is not aligned")
	}
	var w2 Write
	must(t, w2.begin(b.c))
	w2.Refer(r.Data)
	w2.Hold(taken) // as a framer does that sends it
	w2.release(b.c)
	if b.c.pool.inUse != inUse {
		t.Error("a write that has ended keeps it")
	}
}
