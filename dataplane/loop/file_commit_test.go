package loop

import (
	"errors"
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

func TestAWriteThatNobodyWaitsForNeedsNoSync(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil)
	w, through := b.write(Written, 0), b.write(Through, unit)
	if r := b.parked(uring.KindWrite); r[0].Durable || !r[1].Durable {
		t.Error("the wrong one is durable by itself")
	}
	b.answer(uring.KindWrite, 0)
	b.ended(w, nil)
	b.ended(through, nil)
	if n := len(b.parked(uring.KindSync)); n != 0 {
		t.Errorf("%d syncs", n)
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
