package drivertest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

const page = 4096

// Files runs every test of the contract, each with a bed of its own.
func Files(t *testing.T, open func(t *testing.T) *Bed) {
	for _, one := range []struct {
		name string
		run  func(b *Bed)
	}{
		{"what is written is read, in the order of its pieces", pieces},
		{"a read ends where the file ends", atTheEnd},
		{"nothing to move ends at once", nothing},
		{"durable writes and syncs succeed", durable},
		{"reserved space is part of the file", allocated},
		{"many requests at once each get their answer", many},
		{"a cancelled request has one answer", cancelled},
		{"a file is closed under its requests", closedUnder},
		{"a closed file takes no request", closedFile},
		{"errors belong to their request", refused},
		{"a disk measures what was written, reserved and cut", measured},
		{"names belong to their files", named},
		{"registered memory moves as other memory", registered},
		{"memory is taken back under its requests", unregistered},
		{"registered memory stays mapped", pinned},
		{"a driver that closes waits for its requests", closing},
	} {
		t.Run(one.name, func(t *testing.T) {
			b := open(t)
			b.t, b.answers, b.kinds = t, map[uint64][]uring.Completion{}, map[uint64]uring.Kind{}
			one.run(b)
		})
	}
}

func pieces(b *Bed) {
	rng := rand.New(rand.NewPCG(2, 1))
	f := b.open(b.path())
	for _, part := range []int{page, 64 << 10} {
		all := b.random(rng, 16*part)
		v := b.list(all[12*part:], all[4*part:5*part], all[:part])
		user, _ := b.write(f, v, int64(part), false)
		b.expect(user, int32(v.Size()))
		want := v.AppendTo(nil)
		if v.Size() != 6*part || len(want) != 6*part {
			b.t.Fatal("the list has changed")
		}
		b.holds(f, want, int64(part))
		got := b.memory(8 * part)
		w := b.list(got[6*part:8*part], got[:4*part])
		user, _ = b.read(f, w, int64(part))
		b.expect(user, int32(6*part))
		if !bytes.Equal(w.AppendTo(nil), want) {
			b.t.Fatal("other bytes, or in another order")
		}
	}
	b.holds(f, make([]byte, page), 0) // before all that was written
	b.atRest()
}

func atTheEnd(b *Bed) {
	f := b.open(b.path())
	p := b.random(rand.New(rand.NewPCG(3, 1)), 2*page)
	b.put(f, p, 0)
	got := b.memory(4 * page)
	user, _ := b.read(f, b.list(got), page)
	b.expect(user, page)
	if !bytes.Equal(got[:page], p[page:]) {
		b.t.Fatal("other bytes")
	}
	for _, off := range []int64{2 * page, 100 * page} {
		user, _ = b.read(f, b.list(got), off)
		b.expect(user, 0)
	}
	Must(b.t, b.Disk.Truncate(f.FD(), page+100)) // no multiple of a block
	user, _ = b.read(f, b.list(got), 0)
	b.expect(user, page+100)
	b.atRest()
	for _, c := range []struct {
		off, length int64
		want        []byte
		err         error
	}{
		{0, page, p[:page], nil}, {page, page, p[page : page+100], io.EOF}, {0, 4 * page, p[:page+100], io.EOF},
		{8 * page, page, nil, io.EOF}, {8 * page, 0, nil, nil},
	} {
		n, err := b.Disk.ReadAt(f.FD(), got[:c.length], c.off)
		if err != c.err || !bytes.Equal(got[:n], c.want) {
			b.t.Fatalf("without a driver %d bytes of %d are read from %d on, %v", n, c.length, c.off, err)
		}
	}
}

func nothing(b *Bed) {
	f := b.open(b.path())
	r, _ := b.read(f, b.list(), 0)
	w, _ := b.write(f, b.list(), 0, false)
	d, _ := b.write(f, b.list(), 0, true)
	b.expect(r, 0)
	b.expect(w, 0)
	b.expect(d, 0)
}

func durable(b *Bed) {
	f := b.open(b.path())
	p := b.random(rand.New(rand.NewPCG(4, 1)), page)
	user, _ := b.write(f, b.list(p), 0, true)
	b.expect(user, page)
	user, _ = b.sync(f)
	b.expect(user, 0)
	b.holds(f, p, 0)
}

func allocated(b *Bed) {
	f := b.open(b.path())
	user, _ := b.allocate(f, 0, 8*page)
	if c := b.await(user); c.Errno() == unix.EOPNOTSUPP {
		b.t.Log("the file system cannot reserve space")
		return
	} else if c.Res != 0 {
		b.t.Fatalf("allocate: %v", c.Errno())
	}
	b.holds(f, make([]byte, 8*page), 0)
}

func many(b *Bed) {
	const n = 600 // more than fit into the queues
	rng := rand.New(rand.NewPCG(6, 1))
	f := b.open(b.path())
	all := b.random(rng, n*page)
	users := make([]uint64, n)
	for _, i := range rng.Perm(n) {
		users[i], _ = b.write(f, b.list(all[i*page:(i+1)*page]), int64(i)*page, false)
	}
	for _, user := range users {
		b.expect(user, page)
	}
	got := b.memory(n * page)
	for i := range n {
		users[i], _ = b.read(f, b.list(got[i*page:(i+1)*page]), int64(i)*page)
	}
	for _, user := range users {
		b.expect(user, page)
	}
	if !bytes.Equal(got, all) {
		b.t.Fatal("other bytes")
	}
	b.atRest()
}

func cancelled(b *Bed) {
	f := b.open(b.path())
	for range 50 {
		user, op := b.write(f, b.list(b.memory(page)), 0, true)
		b.Driver.Cancel(op)
		b.Driver.Cancel(op)
		if c := b.await(user); c.Res != page && !failed(c.Res, unix.ECANCELED) {
			b.t.Fatalf("a cancelled write ended with %d (%v)", c.Res, c.Errno())
		}
		b.Driver.Cancel(op) // it has ended
	}
	b.atRest()
}

func closedUnder(b *Bed) {
	path := b.path()
	f := b.open(path)
	var users []uint64
	for i := range 40 {
		w, _ := b.write(f, b.list(b.memory(page)), int64(i)*page, true)
		s, _ := b.sync(f)
		users = append(users, w, s)
	}
	b.Driver.CloseFile(f)
	b.Driver.CloseFile(f)
	if _, err := b.Driver.AskFile(f, uring.FileRequest{Kind: uring.KindRead, Vec: b.list(b.memory(page)), User: 1}); !errors.Is(err, unix.EBADF) {
		b.t.Fatalf("a read of a file that is being closed: %v", err)
	}
	for _, user := range users {
		if c := b.await(user); c.Res < 0 && !failed(c.Res, unix.ECANCELED) {
			b.t.Fatalf("ended with %v", c.Errno())
		}
	}
	b.atRest()
	Must(b.t, b.Disk.Remove(path))
}

func closedFile(b *Bed) {
	f := b.open(b.path())
	b.Driver.CloseFile(f)
	if _, err := b.Disk.Stat(f.FD()); err == nil {
		b.t.Fatal("a file without requests is not closed at once")
	}
	g := b.open(b.path()) // most likely with the same number
	v := b.list(b.memory(page))
	_, errR := b.Driver.AskFile(uring.File{}, uring.FileRequest{Kind: uring.KindRead, Vec: v, User: 1})
	_, errS := b.Driver.AskFile(uring.File{}, uring.FileRequest{Kind: uring.KindSync, User: 1})
	if errR == nil || errS == nil {
		b.t.Fatal("the zero File is taken")
	}
	b.put(g, b.memory(page), 0)
	b.atRest()
}

func refused(b *Bed) {
	f := b.open(b.path())
	p := b.memory(page)
	for _, off := range []int64{-page, -1} { // the latter is the file's own position to some calls of the kernel
		bad, _ := b.read(f, b.list(p), off)
		worse, _ := b.write(f, b.list(p), off, false)
		good, _ := b.write(f, b.list(p), 0, false)
		for _, user := range []uint64{bad, worse} {
			if c := b.await(user); !failed(c.Res, unix.EINVAL) {
				b.t.Fatalf("a request %d before the file: %d", off, c.Res)
			}
		}
		b.expect(good, page)
	}
	none, _ := b.allocate(f, 0, 0)
	if c := b.await(none); !failed(c.Res, unix.EINVAL, unix.EOPNOTSUPP) {
		b.t.Fatalf("nothing was reserved: %d", c.Res)
	}
	path := b.path()
	b.Driver.CloseFile(b.open(path))
	fd, err := b.Disk.Open(path, uring.FileOptions{Direct: b.Direct})
	Must(b.t, err)
	only, err := b.Driver.AdoptFile(fd)
	Must(b.t, err)
	user, _ := b.write(only, b.list(p), 0, false)
	if c := b.await(user); !failed(c.Res, unix.EBADF) {
		b.t.Fatalf("a write to a file that is open for reading: %d", c.Res)
	}
}

func closing(b *Bed) {
	f := b.open(b.path())
	for i := range 100 {
		b.write(f, b.list(b.memory(page)), int64(i)*page, true)
	}
	Must(b.t, b.Driver.CloseDriver())
	if _, err := b.Driver.AskFile(f, uring.FileRequest{Kind: uring.KindSync, User: 1}); err == nil {
		b.t.Fatal("a closed driver takes requests")
	}
	b.Driver.CloseFile(f)
}
