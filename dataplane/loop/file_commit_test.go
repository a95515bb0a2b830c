package loop

import (
	"errors"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// syncing wants so many syncs under way.
func (b *fileBed) syncing(want int, why string) {
	b.t.Helper()
	if n := len(b.parked(uring.KindSync)); n != want {
		b.t.Fatalf("%d syncs are under way, want %d: %s", n, want, why)
	}
}

// Matrix: ST-07
func TestWritesThatWaitForDurabilityShareSyncs(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil)
	first := b.write(Committed, 0)
	b.settle()
	b.answer(uring.KindWrite, 0)
	b.pending(first)
	b.syncing(1, "the write is done")
	var later []*noted
	for i := range 10 {
		later = append(later, b.write(Committed, int64(i)*unit))
	}
	explicit := newRequest()
	must(t, b.f.Sync(&explicit.FileOp))
	b.answer(uring.KindWrite, 0)
	b.syncing(1, "while one is under way")
	b.answer(uring.KindSync, 0)
	b.ended(first, nil)
	b.pending(append(later, explicit)...) // the sync began before them
	b.answer(uring.KindSync, 0)
	for _, r := range append(later, explicit) {
		b.ended(r, nil)
	}
	if st := b.c.Counts().Files; st.Syncs != 2 || st.Commits != 12 || st.Ops != 0 || st.Uncommitted != 0 {
		t.Errorf("%+v", st)
	}
}

// Matrix: ST-07
func TestAGroupIsBoundedInTimeAndBytes(t *testing.T) {
	b := newFileBed(t, FileOptions{CommitDelay: time.Second, commitBytes: 3 * unit}, nil)
	waitsItsSecond := func(group string) {
		t.Helper()
		b.write(Committed, 0)
		b.answer(uring.KindWrite, 0)
		b.after(999 * time.Millisecond)
		b.syncing(0, group+" group waits for others")
		b.after(time.Millisecond)
		b.syncing(1, group+" group waits no longer than its bound")
		b.answer(uring.KindSync, 0)
	}
	waitsItsSecond("the first")
	for range 3 {
		b.write(Committed, 0)
	}
	b.answer(uring.KindWrite, 0)
	b.syncing(1, "the bytes are at the bound")
	b.answer(uring.KindSync, 0)
	b.after(time.Minute)
	waitsItsSecond("a later") // its bound counts from its own begin
}

// What waits for room of its core ends when its file is poisoned, and who has stopped
// because of it is told, although no request of the file is under way.
// Matrix: ST-07
func TestAPoisonedFileWithNothingUnderWayTellsThatThereIsRoom(t *testing.T) {
	b := newFileBed(t, FileOptions{}, func(cfg *Config) { cfg.FileOps = 1 })
	g := b.open("/g", FileOptions{})
	b.write(Committed, 0)
	b.answer(uring.KindWrite, 0) // its sync is under way
	other := newRequest()
	must(t, g.WriteAt(&other.FileOp, make([]byte, unit), 0, Written))
	room := 0
	b.f.AwaitRoom(onRoom(func() { room++ }))
	waiting := b.write(Written, 0)
	if !b.f.Full() {
		t.Fatal("the core has room")
	}
	b.answer(uring.KindSync, unix.EIO)
	b.ended(waiting, unix.EIO)
	if room != 1 || b.f.Full() {
		t.Errorf("told %d times", room)
	}
	b.answer(uring.KindWrite, 0)
	b.ended(other, nil)
}

// A file that ends while a group waits leaves nothing behind that would fire.
// Matrix: ST-07
func TestAGroupThatWaitsEndsWithItsFile(t *testing.T) {
	b := newFileBed(t, FileOptions{CommitDelay: time.Hour}, nil)
	w := b.write(Committed, 0)
	b.answer(uring.KindWrite, 0)
	if _, ok := b.c.timers.next(); !ok {
		t.Fatal("nothing bounds how long the group waits")
	}
	b.f.Close()
	b.ended(w, ErrNotDurable)
	if when, ok := b.c.timers.next(); ok {
		t.Errorf("a timer is left, for %v", when)
	}
}

// Matrix: ST-07
func TestASyncThatFailsPoisonsWhatWasNotDurable(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EINTR} {
		t.Run(errno.Error(), func(t *testing.T) {
			b := newFileBed(t, FileOptions{Ops: 3}, nil)
			safe := b.write(Committed, 0)
			b.answer(uring.KindWrite, 0)
			b.answer(uring.KindSync, 0)
			b.ended(safe, nil)
			covered := b.write(Committed, 0)
			b.answer(uring.KindWrite, 0)
			waiting := b.write(Committed, 0)
			b.answer(uring.KindWrite, 0)
			flying, read, through := b.write(Committed, 0), b.read(0), b.write(Through, 0)
			inLine, readInLine := b.write(Written, 0), b.read(0)
			b.settle()
			b.answer(uring.KindSync, errno)
			for _, r := range []*noted{covered, waiting, inLine} {
				b.ended(r, errno)
				b.ended(r, ErrNotDurable)
			}
			b.pending(flying, read, through, readInLine)
			b.answer(uring.KindWrite, 0)
			b.answer(uring.KindRead, 0)
			b.answer(uring.KindRead, 0)
			b.ended(flying, ErrNotDurable)
			b.ended(through, ErrNotDurable)
			b.ended(read, nil)
			b.ended(readInLine, nil)
			var poison *PoisonError
			for _, err := range []error{
				b.f.WriteAt(&newRequest().FileOp, nil, 0, Written), b.f.Sync(&newRequest().FileOp),
				b.f.Allocate(&newRequest().FileOp, 0, 1), b.f.Poisoned(),
			} {
				if !errors.As(err, &poison) || poison.Cause != errno || poison.File != "/f" {
					t.Errorf("a poisoned file: %v", err)
				}
			}
			if n := len(b.d.Files); n != 0 {
				t.Errorf("%d requests are made anew", n)
			}
		})
	}
}

// A request that is refused again and again, and made again each time, takes one place in
// each turn of its core: the rest goes on.
// Matrix: ST-09
func TestARequestThatIsRefusedForEverHoldsUpNobody(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil)
	b.d.FileErr = unix.ENOMEM
	tries, enough := 0, 1000
	op := new(FileOp)
	op.Done = func(*Core, *FileOp) {
		if tries++; tries < enough {
			must(t, b.f.WriteAt(op, make([]byte, unit), 0, Written))
		}
	}
	must(t, b.f.WriteAt(op, make([]byte, unit), 0, Written))
	const turns = 10
	ran := false
	must(t, b.c.Do(func(*Core) { ran = true }))
	for range turns {
		must(t, b.c.turn(false))
	}
	if tries == 0 || tries > turns || !ran {
		t.Errorf("%d tries in %d turns, others ran: %v", tries, turns, ran)
	}
	enough = 0
	b.settle()
}

// The kernel tells of a failed write-back once: to the sync of whichever write asks first. So writes through the page
// cache have one sync at a time, which they share; one that would have its own waits for no others. With direct I/O each
// write hears of its own error.
// Matrix: ST-07
func TestDurableWritesThroughTheCacheHaveOneSyncAtATime(t *testing.T) {
	for _, direct := range []uring.DirectMode{uring.Buffered, uring.Direct} {
		b := newFileBed(t, FileOptions{Direct: direct, CommitDelay: time.Hour}, nil)
		var all []*noted
		ask := func(how Durability) {
			buf, err := b.c.Lend(unit)
			must(t, err)
			r := newRequest()
			r.Done = func(c *Core, _ *FileOp) { r.done++; c.TakeBack(buf) }
			must(t, b.f.WriteAt(&r.FileOp, buf.Bytes()[:unit], 0, how))
			all = append(all, r)
		}
		ask(Committed)
		b.answer(uring.KindWrite, 0)
		b.syncing(0, "a write waits for others")
		ask(Through)
		if durable := b.parked(uring.KindWrite)[0].Durable; durable != (direct == uring.Direct) {
			t.Errorf("direct %v: the write has a sync of its own: %v", direct, durable)
		}
		b.answer(uring.KindWrite, 0)
		if direct == uring.Direct {
			b.ended(all[1], nil)
			ask(Through)
			b.answer(uring.KindWrite, unix.EIO)
			b.ended(all[2], unix.EIO)
			b.pending(all[0])
			if b.f.Poisoned() != nil {
				t.Errorf("direct I/O: %v", b.f.Poisoned())
			}
			continue
		}
		for range 3 { // for the next sync
			ask(Through)
		}
		b.answer(uring.KindWrite, 0)
		b.syncing(1, "all share one")
		b.pending(all...)
		ask(Through) // in the kernel when the sync fails
		b.answer(uring.KindSync, unix.ENOSPC)
		b.answer(uring.KindWrite, 0)
		for _, r := range all {
			b.ended(r, unix.ENOSPC)
			b.ended(r, ErrNotDurable)
		}
	}
}

func TestARequestThatNoCompletionCanDescribeIsRefused(t *testing.T) {
	for _, direct := range []uring.DirectMode{uring.Buffered, uring.Direct} {
		b := newFileBed(t, FileOptions{Direct: direct}, nil)
		for _, n := range []int{math.MaxInt, math.MaxInt32, maxTransfer + 1} {
			if err := b.f.ReadBuffer(&newRequest().FileOp, n, 7); !errors.Is(err, unix.EINVAL) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		if b.c.Counts().Files.Ops != 0 || b.c.pool.inUse != 0 {
			t.Error("a request that was refused holds something")
		}
	}
}

// Where the kernel keeps a request behind the end of its core, its memory stays as it is,
// although those give it back who do not know.
// Matrix: ST-10
func TestMemoryThatTheKernelKeepsIsNotFreedBehindTheEndOfItsCore(t *testing.T) {
	for name, opt := range map[string]FileOptions{"direct": {Direct: uring.Direct}, "buffered": {}} {
		t.Run(name, func(t *testing.T) {
			b := newFileBed(t, opt, nil)
			b.d.CloseErr = unix.EBUSY
			var errs []error
			done := func(buf *Buffer) func(*Core, *FileOp) {
				return func(c *Core, op *FileOp) {
					errs = append(errs, op.Err)
					c.TakeBack(buf)
				}
			}
			large, block, late := b.lend(256<<10), b.lend(unit), b.lend(256<<10)
			must(t, b.f.ReadAt(&FileOp{Done: done(large)}, large.Bytes()[:64<<10], 0))
			must(t, b.f.WriteAt(&FileOp{Done: done(block)}, block.Bytes()[:unit], 0, Committed))
			lent := []*Buffer{large, late}
			own := newRequest()
			if name == "direct" {
				must(t, b.f.ReadBuffer(&own.FileOp, 256<<10, 0))
				lent = append(lent, own.own)
			}
			b.settle()
			for _, buf := range append(lent, block) {
				buf.Bytes()[0] = 77
			}
			must(t, b.p.Close())
			b.c.Return(&Loan{Of: giveBack{late}})
			if len(errs) != 2 || own.done != len(lent)-2 || own.Data != nil {
				t.Fatalf("%d requests have ended, %d", len(errs), own.done)
			}
			if own.done == 1 {
				errs = append(errs, own.Err)
			}
			for _, err := range errs {
				if !errors.Is(err, unix.EBUSY) || !errors.Is(err, ErrStopped) {
					t.Errorf("ended with %v", err)
				}
			}
			for i, buf := range lent {
				if buf.mem.Bytes() == nil || buf.Bytes()[0] != 77 {
					t.Errorf("buffer %d is freed, or written to", i)
				}
			}
			if len(b.c.pool.chunks) == 0 || block.Bytes()[0] != 77 {
				t.Error("blocks are freed, or written to")
			}
		})
	}
}
