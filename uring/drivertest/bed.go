package drivertest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Bed is a driver with the disk that its files are on. The test of a driver makes
// it, and closes the driver.
type Bed struct {
	Driver uring.Driver
	Disk   uring.Disk
	Dir    string // that files are made in
	Direct uring.DirectMode
	// Step lets something happen, for a driver whose Wait does not sleep; else nil.
	Step func()

	t       testing.TB
	answers map[uint64][]uring.Completion
	kinds   map[uint64]uring.Kind // in flight
	user    uint64
	names   int
}

// patience is how long a test waits for what must happen, on a machine that has much else to do.
const patience = time.Minute

// path names a new file.
func (b *Bed) path() string {
	b.names++
	return b.Dir + "/file-" + string(rune('a'+b.names))
}

// open makes a file of the driver.
func (b *Bed) open(path string) uring.File {
	b.t.Helper()
	fd, err := b.Disk.Open(path, uring.FileOptions{Write: true, Create: true, Direct: b.Direct})
	Must(b.t, err)
	f, err := b.Driver.AdoptFile(fd)
	Must(b.t, err)
	if f.FD() != fd || !f.Valid() {
		b.t.Fatalf("file %d became %d", fd, f.FD())
	}
	return f
}

// ask makes a request, and notes it.
func (b *Bed) ask(f uring.File, r uring.FileRequest) (uint64, uring.Op) {
	b.t.Helper()
	b.user += 0x9e3779b97f4a7c15
	r.User = b.user
	op, err := b.Driver.AskFile(f, r)
	Must(b.t, err)
	if op == 0 {
		b.t.Fatal("an operation has the zero Op")
	}
	b.kinds[r.User] = r.Kind
	return r.User, op
}

// Arguments of another kind of request have no effect.

func (b *Bed) read(f uring.File, v *uring.Vec, off int64) (uint64, uring.Op) {
	return b.ask(f, uring.FileRequest{Kind: uring.KindRead, Vec: v, Off: off, Durable: true, Length: 1})
}

func (b *Bed) write(f uring.File, v *uring.Vec, off int64, durable bool) (uint64, uring.Op) {
	return b.ask(f, uring.FileRequest{Kind: uring.KindWrite, Vec: v, Off: off, Durable: durable})
}

func (b *Bed) sync(f uring.File) (uint64, uring.Op) {
	return b.ask(f, uring.FileRequest{Kind: uring.KindSync, Off: 1 << 30, Length: 1, Durable: true})
}

func (b *Bed) allocate(f uring.File, off, n int64) (uint64, uring.Op) {
	return b.ask(f, uring.FileRequest{Kind: uring.KindAllocate, Off: off, Length: n, Durable: true})
}

// step waits once.
func (b *Bed) step() {
	b.t.Helper()
	timeout := patience
	if b.Step != nil {
		b.Step()
		timeout = 0
	}
	list, err := b.Driver.Wait(timeout)
	Must(b.t, err)
	for _, c := range list {
		kind, ok := b.kinds[c.User]
		if !ok || kind != c.Kind || c.Flags != 0 {
			b.t.Fatalf("completion %+v of a request that is not in flight, or of another kind (%v)", c, kind)
		}
		delete(b.kinds, c.User)
		b.answers[c.User] = append(b.answers[c.User], c)
	}
}

// await is the answer to a request.
func (b *Bed) await(user uint64) uring.Completion {
	b.t.Helper()
	for begun := time.Now(); len(b.answers[user]) == 0; b.step() {
		if time.Since(begun) > patience {
			b.t.Fatalf("no answer; stats %+v", b.Driver.Stats())
		}
	}
	return b.answers[user][0]
}

// expect wants a result.
func (b *Bed) expect(user uint64, res int32) {
	b.t.Helper()
	if c := b.await(user); c.Res != res {
		b.t.Fatalf("result %d (%v), want %d", c.Res, c.Errno(), res)
	}
}

// memory is page-aligned, and goes with the test. Go memory it is not, so that
// direct I/O gets the alignment that it wants.
func (b *Bed) memory(n int) []byte {
	b.t.Helper()
	m, err := uring.Map(n)
	Must(b.t, err)
	b.t.Cleanup(func() { _ = m.Unmap() })
	return m.Bytes()[:n:n]
}

// random is memory with random bytes.
func (b *Bed) random(rng *rand.Rand, n int) []byte {
	p := b.memory(n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

// list is a gather list that goes with the test.
func (b *Bed) list(pieces ...[]byte) *uring.Vec {
	b.t.Helper()
	v, err := uring.NewVec(max(1, len(pieces)))
	Must(b.t, err)
	b.t.Cleanup(v.Free)
	for _, p := range pieces {
		v.Append(p)
	}
	return v
}

// put writes p, and waits.
func (b *Bed) put(f uring.File, p []byte, off int64) {
	b.t.Helper()
	user, _ := b.write(f, b.list(p), off, false)
	b.expect(user, int32(len(p)))
}

// holds wants the file to hold want at off.
func (b *Bed) holds(f uring.File, want []byte, off int64) {
	b.t.Helper()
	got := b.memory(len(want))
	user, _ := b.read(f, b.list(got), off)
	b.expect(user, int32(len(want)))
	if !bytes.Equal(got, want) {
		b.t.Fatalf("other bytes at %d", off)
	}
}

// atRest wants no operation to be left.
func (b *Bed) atRest() {
	b.t.Helper()
	for range 5 {
		if b.Step != nil {
			b.Step()
		}
		if list, err := b.Driver.Wait(0); err != nil || len(list) > 0 {
			b.t.Fatalf("answers that nobody asked for: %+v, %v", list, err)
		}
	}
	if n := b.Driver.Stats().InFlight; n != 0 {
		b.t.Fatalf("%d operations in flight", n)
	}
}

// failed says whether res is one of the errnos.
func failed(res int32, errnos ...unix.Errno) bool { return slices.Contains(errnos, unix.Errno(-res)) }
