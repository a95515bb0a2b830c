package loop

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Matrix: ST-07
func TestWritesThatWaitForDurabilityShareSyncs(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil)
	first := b.write(Committed, 0)
	b.settle()
	b.answer(uring.KindWrite, 0)
	b.pending(first)
	if n := len(b.parked(uring.KindSync)); n != 1 {
		t.Fatalf("%d syncs", n)
	}
	var later []*noted
	for i := range 10 {
		later = append(later, b.write(Committed, int64(i)*unit))
	}
	explicit := newRequest()
	must(t, b.f.Sync(&explicit.FileOp))
	b.answer(uring.KindWrite, 0)
	if n := len(b.parked(uring.KindSync)); n != 1 {
		t.Fatalf("%d syncs, while one is under way", n)
	}
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
		if n := len(b.parked(uring.KindSync)); n != 0 {
			t.Fatalf("the sync of %s group does not wait for others", group)
		}
		b.after(time.Millisecond)
		if n := len(b.parked(uring.KindSync)); n != 1 {
			t.Fatalf("the sync of %s group waits for longer than its bound", group)
		}
		b.answer(uring.KindSync, 0)
	}
	waitsItsSecond("the first")
	for range 3 {
		b.write(Committed, 0)
	}
	b.answer(uring.KindWrite, 0)
	if n := len(b.parked(uring.KindSync)); n != 1 {
		t.Error("more bytes wait than the bound")
	}
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
			b.ended(through, nil)
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

// A write through the page cache that is durable by itself waits for what others have
// written, and the kernel tells of an error once: nothing of the file is durable then,
// whatever a sync says that was under way. Any error can come from the device, but for those of requests that are not
// begun. XFS passes on those of a medium, and one that was promised more blocks than there are has no space.
// Matrix: ST-07
func TestADurableWriteThroughTheCacheThatFailsPoisons(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.ENODATA, unix.EREMOTEIO, unix.EINVAL, unix.ENOMEM} {
		for _, direct := range []uring.DirectMode{uring.Buffered, uring.Direct} {
			t.Run(fmt.Sprint(errno, direct), func(t *testing.T) {
				b := newFileBed(t, FileOptions{Direct: direct}, nil)
				ask := func(how Durability) *noted {
					buf, err := b.c.Lend(unit)
					must(t, err)
					r := newRequest()
					r.Done = func(c *Core, _ *FileOp) { r.done++; c.TakeBack(buf) }
					must(t, b.f.WriteAt(&r.FileOp, buf.Bytes()[:unit], 0, how))
					return r
				}
				covered := ask(Committed)
				b.answer(uring.KindWrite, 0) // its sync is under way
				waiting := ask(Committed)
				b.answer(uring.KindWrite, 0)
				through := ask(Through)
				b.answer(uring.KindWrite, errno)
				b.ended(through, errno)
				poisoned := errno != unix.EINVAL && errno != unix.ENOMEM && direct == uring.Buffered
				if poisoned {
					b.ended(waiting, ErrNotDurable)
				} else {
					b.pending(waiting)
				}
				b.pending(covered) // the kernel still syncs
				b.answer(uring.KindSync, 0)
				b.answer(uring.KindSync, 0)
				if !poisoned {
					b.ended(covered, nil)
					b.ended(waiting, nil)
				} else {
					b.ended(covered, ErrNotDurable)
				}
				if (b.f.Poisoned() != nil) != poisoned {
					t.Errorf("poisoned: %v", b.f.Poisoned())
				}
				if st := b.c.Counts().Files; st.Ops != 0 || st.Uncommitted != 0 || st.Waiting != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// A disk that is full poisons a file only where the error may be that of another write, which no sync would tell of any
// more: of one that is under way, that no sync has covered, or whose sync is under way.
// Matrix: ST-07
func TestAFullDiskPoisonsWhereTheErrorMayBeThatOfAnotherWrite(t *testing.T) {
	for name, one := range map[string]struct {
		poisons bool
		before  func(b *fileBed)
	}{
		"alone":                {false, func(*fileBed) {}},
		"beside a read":        {false, func(b *fileBed) { b.read(0) }},
		"behind a durable one": {false, func(b *fileBed) { b.write(Through, 0); b.answer(uring.KindWrite, 0) }},
		"behind a full disk":   {false, func(b *fileBed) { b.write(Through, 0); b.answer(uring.KindWrite, unix.ENOSPC) }},
		"behind a sync": {false, func(b *fileBed) {
			b.write(Committed, 0)
			b.answer(uring.KindWrite, 0)
			b.answer(uring.KindSync, 0)
		}},
		"beside a sync": {true, func(b *fileBed) { b.write(Committed, 0); b.answer(uring.KindWrite, 0) }},
		"behind one that nobody has made durable": {true, func(b *fileBed) { b.write(Written, 0); b.answer(uring.KindWrite, 0) }},
		"beside another durable one":              {true, func(b *fileBed) { b.write(Through, unit) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFileBed(t, FileOptions{}, nil)
			one.before(b)
			b.settle()
			through := b.write(Through, 2*unit)
			b.settle()
			last := b.parked(uring.KindWrite)
			b.d.AnswerWith(last[len(last)-1], -int32(unix.ENOSPC))
			b.ended(through, unix.ENOSPC)
			if poisoned := b.f.Poisoned() != nil; poisoned != one.poisons {
				t.Errorf("poisoned: %v", b.f.Poisoned())
			}
		})
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
