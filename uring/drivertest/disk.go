package drivertest

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// measured wants what requests and the disk do to a file to be seen by both.
func measured(b *Bed) {
	path := b.path()
	f := b.open(path)
	size := func(want int64) {
		b.t.Helper()
		info, err := b.Disk.Stat(f.FD())
		Must(b.t, err)
		if info.Size != want || info.Alignment != f.Alignment() {
			b.t.Fatalf("measured as %+v, want %d bytes and %+v", info, want, f.Alignment())
		}
	}
	size(0)
	p := b.random(rand.New(rand.NewPCG(13, 1)), 2*page)
	b.put(f, p, page)
	size(3 * page)
	user, _ := b.allocate(f, 0, 8*page)
	if c := b.await(user); c.Res == 0 {
		size(8 * page)
	} else if c.Errno() != unix.EOPNOTSUPP {
		b.t.Fatalf("allocate: %v", c.Errno())
	}
	Must(b.t, b.Disk.Truncate(f.FD(), 2*page))
	size(2 * page)
	Must(b.t, b.Disk.Truncate(f.FD(), 3*page)) // with zeros
	b.holds(f, p[:page], page)
	b.holds(f, make([]byte, page), 2*page)
	Must(b.t, b.Disk.Remove(path)) // it lives for as long as it is open
	b.holds(f, p[:page], page)
	b.Driver.CloseFile(f)
	if _, err := b.Disk.Stat(f.FD()); err == nil {
		b.t.Fatal("a closed file is measured")
	}
	if err := b.Disk.Close(f.FD()); err == nil {
		b.t.Fatal("a file is closed twice")
	}
}

// named wants names to belong to what they name, and what has none to be told apart.
func named(b *Bed) {
	one, two := b.path(), b.path()
	p := b.random(rand.New(rand.NewPCG(14, 1)), page)
	alone := uring.FileOptions{Write: true, Create: true, Exclusive: true, Direct: b.Direct}
	fd, err := b.Disk.Open(one, alone)
	Must(b.t, err)
	Must(b.t, b.Disk.Close(fd)) // which no driver has
	f := b.open(one)
	b.put(f, p, 0)
	b.Driver.CloseFile(f)
	b.Driver.CloseFile(b.open(two))
	if _, err := b.Disk.Open(one, alone); !errors.Is(err, fs.ErrExist) {
		b.t.Fatalf("made twice: %v", err)
	}
	if _, err := b.Disk.Open(b.path(), uring.FileOptions{Direct: b.Direct}); !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatalf("opened what is not there: %v", err)
	}
	if err := b.Disk.Remove(b.path()); !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatalf("removed what is not there: %v", err)
	}
	if err := b.Disk.Rename(b.path(), one); !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatalf("renamed what is not there: %v", err)
	}
	Must(b.t, b.Disk.Rename(one, two)) // over the other one
	Must(b.t, b.Disk.SyncDir(b.Dir))
	names, err := b.Disk.List(b.Dir)
	Must(b.t, err)
	if want := two[len(b.Dir)+1:]; !slices.Contains(names, want) || slices.Contains(names, one[len(b.Dir)+1:]) || !slices.IsSorted(names) {
		b.t.Fatalf("%q are there, want %s", names, want)
	}
	f = b.open(two)
	b.holds(f, p, 0)
	fd, err = b.Disk.Open(two, uring.FileOptions{Write: true, Truncate: true, Direct: b.Direct})
	Must(b.t, err)
	if info, err := b.Disk.Stat(f.FD()); err != nil || info.Size != 0 {
		b.t.Fatalf("emptied: %+v, %v", info, err)
	}
	Must(b.t, b.Disk.Close(fd))
	b.Driver.CloseFile(f)
	Must(b.t, b.Disk.Remove(two))
	b.atRest()
}
