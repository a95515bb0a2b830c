package loop

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

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
// whatever a sync says that was under way.
// Matrix: ST-07
func TestADurableWriteThroughTheCacheThatFailsPoisons(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC} {
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
				poisoned := errno == unix.EIO && direct == uring.Buffered
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
