package drivertest

import (
	"bytes"
	"errors"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// register asks the driver to keep n bytes pinned. Whether it does changes nothing.
func (b *Bed) register(n int) *uring.Memory {
	b.t.Helper()
	m, err := uring.Map(n)
	Must(b.t, err)
	if err := b.Driver.RegisterMemory(m); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, unix.ENOMEM) {
		b.t.Fatal(err)
	}
	return m
}

// release ends that, and frees the memory.
func (b *Bed) release(m *uring.Memory) {
	b.t.Helper()
	b.Driver.UnregisterMemory(m)
	b.Driver.UnregisterMemory(m)
	Must(b.t, m.Unmap())
}

// registered moves bytes from and to registered memory: all of it, pieces of it, lists, and
// lists that begin in it and end in other memory.
func registered(b *Bed) {
	rng := rand.New(rand.NewPCG(11, 1))
	f := b.open(b.path())
	const n = 16 * page
	m, k := b.register(n), b.register(n)
	_ = b.Driver.RegisterMemory(m) // twice is as good as once
	for i := range m.Bytes() {
		m.Bytes()[i] = byte(rng.Uint32())
	}
	want, got := m.Bytes()[:n], k.Bytes()[:n]
	for i, pieces := range [][2][][]byte{
		{{want}, {got}},
		{{want[page : 3*page]}, {got[5*page : 7*page]}},
		{{want[:page], want[8*page : 10*page]}, {got[4*page : 6*page], got[:page]}},
		{{want[n-page:], b.random(rng, 2*page)}, {b.memory(page), got[:2*page]}},
		{{b.random(rng, page)}, {got[3*page : 4*page]}},
		{{want[:page]}, {b.memory(page)}},
	} {
		w, r := b.list(pieces[0]...), b.list(pieces[1]...)
		off := int64(i) * 2 * n
		user, _ := b.write(f, w, off, i%2 == 1)
		b.expect(user, int32(w.Size()))
		user, _ = b.read(f, r, off)
		b.expect(user, int32(w.Size()))
		if !bytes.Equal(r.AppendTo(nil), w.AppendTo(nil)) {
			b.t.Fatalf("list %d: other bytes", i)
		}
	}
	user, _ := b.read(f, b.list(got), 1<<30)
	b.expect(user, 0)
	user, _ = b.read(f, b.list(got), -page)
	if c := b.await(user); !failed(c.Res, unix.EINVAL) {
		b.t.Fatalf("a read before the file: %d", c.Res)
	}
	b.Driver.UnregisterMemory(m) // once is enough
	Must(b.t, m.Unmap())
	b.release(k)
	b.atRest()
}

// unregistered takes memory back under its requests: they end, and what is mapped at the
// same address afterwards gets its own bytes.
func unregistered(b *Bed) {
	rng := rand.New(rand.NewPCG(12, 1))
	f := b.open(b.path())
	content := b.random(rng, 8*page)
	b.put(f, content, 0)
	for range 20 {
		m := b.register(8 * page)
		user, _ := b.read(f, b.list(m.Bytes()[:8*page]), 0)
		b.Driver.UnregisterMemory(m)
		b.expect(user, 8*page)
		if !bytes.Equal(m.Bytes()[:8*page], content) {
			b.t.Fatal("other bytes")
		}
		b.release(m) // the next one is mapped in its place, as a rule
	}
	b.atRest()
}

// pinned wants memory that is registered to stay mapped, until the driver has closed.
func pinned(b *Bed) {
	m, err := uring.Map(page)
	Must(b.t, err)
	if err := b.Driver.RegisterMemory(m); err != nil {
		Must(b.t, m.Unmap())
		Must(b.t, b.Driver.CloseDriver())
		b.Driver.UnregisterMemory(m)
		return
	}
	if err := m.Unmap(); !errors.Is(err, unix.EBUSY) || len(m.Bytes()) != page {
		b.t.Fatalf("memory that is registered is unmapped: %v", err)
	}
	Must(b.t, b.Driver.CloseDriver())
	if err := b.Driver.RegisterMemory(m); err == nil {
		b.t.Fatal("a closed driver registers memory")
	}
	b.Driver.UnregisterMemory(m)
	Must(b.t, m.Unmap())
	Must(b.t, m.Unmap())
}
