package drivertest

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Exactly what uring maps is counted, and nothing that the Go runtime maps.
func TestOnlyOurOwnMappingsAreCounted(t *testing.T) {
	before := mappedBytes(t)
	var kept [][]byte
	for range 64 {
		kept = append(kept, make([]byte, 1<<20)) // Go's
	}
	other, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	Must(t, err)
	if n := mappedBytes(t); n != before {
		t.Errorf("%d bytes, %d with a larger heap", before, n)
	}
	runtime.KeepAlive(kept)
	var ours []*uring.Memory
	want := before
	for _, pages := range []int{1, 3, 1, 16, 2} {
		m, err := uring.Map(pages * os.Getpagesize())
		Must(t, err)
		ours, want = append(ours, m), want+pages*os.Getpagesize()
		if n := mappedBytes(t); n != want {
			t.Errorf("%d bytes, want %d", n, want)
		}
	}
	Must(t, unix.Munmap(other))
	for _, m := range ours {
		Must(t, m.Unmap())
	}
	if n := mappedBytes(t); n != before {
		t.Errorf("%d bytes in the end, %d at first", n, before)
	}
}

// A driver's memory is counted, its queues included, and gone when it is closed.
func TestTheMemoryOfADriverIsCounted(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := mappedBytes(t)
	d, err := uring.Open(uring.Config{})
	Must(t, err)
	n := mappedBytes(t)
	if d.Info().Backend != uring.Epoll && n-before < 256*(64+8*16) {
		t.Errorf("%d bytes for a ring of 256 requests", n-before)
	}
	Must(t, d.CloseDriver())
	if n := settled(before, func() int { return mappedBytes(t) }); n != before {
		t.Errorf("%d bytes before, %d after", before, n)
	}
}

func TestSmapsThatCannotBeReadAreAnError(t *testing.T) {
	if _, err := mapped([]byte("7f00-7f01 rw-p 0 00:00 0\nSize: many kB\n")); err == nil {
		t.Error("no error")
	}
}

// fakeTB is a test that a helper may fail.
type fakeTB struct {
	testing.TB
	failed  bool
	cleanup []func()
}

func (f *fakeTB) Helper()               {}
func (f *fakeTB) Cleanup(c func())      { f.cleanup = append(f.cleanup, c) }
func (f *fakeTB) Errorf(string, ...any) { f.failed = true }

// Matrix: INV-07
func TestLeaksAreFound(t *testing.T) {
	settleTime = 50 * time.Millisecond
	defer func() { settleTime = patience }()
	for _, leak := range []struct {
		name string
		make func() (undo func())
	}{
		{"goroutines", func() func() { // more than those of tests before that are just ending
			c := make(chan struct{})
			for range 8 {
				go func() { <-c }()
			}
			return func() { close(c) }
		}},
		{"descriptor", func() func() {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = l.Close() }
		}},
	} {
		t.Run(leak.name, func(t *testing.T) {
			f := &fakeTB{TB: t}
			LeavesNothing(f)
			undo := leak.make()
			for _, c := range f.cleanup {
				c()
			}
			undo()
			if !f.failed {
				t.Error("not found")
			}
		})
	}
}
