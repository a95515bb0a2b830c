package uring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func newVec(t testing.TB, n int) *Vec {
	t.Helper()
	v, err := NewVec(n)
	must(t, err)
	t.Cleanup(v.Free)
	return v
}

// listOf is a list of one piece.
func listOf(t testing.TB, p []byte) *Vec {
	t.Helper()
	v := newVec(t, 1)
	v.Append(p)
	return v
}

// rest is what message describes; all of it lies in arena.
func (v *Vec) rest(arena []byte) (all []byte) {
	v.message()
	if v.hdr.iovlen != uintptr(v.n-v.first) {
		return nil
	}
	for _, e := range v.iovs[v.first:v.n] {
		at := e.base - uintptr(unsafe.Pointer(&arena[0]))
		all = append(all, arena[at:at+e.len]...)
	}
	return all
}

func TestVecRefusesImpossibleSizes(t *testing.T) {
	for _, n := range []int{-1, 0, maxVec + 1} {
		if v, err := NewVec(n); err == nil {
			v.Free()
			t.Errorf("NewVec(%d) succeeded", n)
		}
	}
}

func TestVecMergesNeighboursInMemory(t *testing.T) {
	v := newVec(t, 2)
	data := make([]byte, 100)
	for _, cut := range [][2]int{{0, 10}, {10, 10}, {10, 30}, {30, 31}, {50, 60}, {60, 100}} {
		if !v.Append(data[cut[0]:cut[1]]) {
			t.Fatalf("no room for %v", cut)
		}
	}
	if v.Count() != 2 || v.Size() != 81 {
		t.Errorf("%d entries of %d bytes, want 2 of 81", v.Count(), v.Size())
	}
	if len(v.refs) != 2 {
		t.Errorf("%d references for one array in two stretches, want 2", len(v.refs))
	}
	if got := v.AppendTo([]byte("head")); len(got) != 4+81 || string(got[:4]) != "head" {
		t.Errorf("AppendTo made %d bytes, want %d", len(got), 4+81)
	}
	if v.Append(data[:1]) {
		t.Error("a third stretch fitted into two entries")
	}
	if !v.Append(nil) || v.Count() != 2 {
		t.Error("an empty piece took room")
	}
	v.Reset()
	if v.Count() != 0 || v.Size() != 0 || !v.Append(data[:1]) {
		t.Error("not empty after Reset")
	}
}

// Matrix: IO-12
func TestVecKeepsEveryMergedObjectAlive(t *testing.T) {
	v := newVec(t, 4)
	data := make([]byte, 64)
	// Two slices that end where their objects would: capacity says so.
	v.Append(data[:32:32])
	v.Append(data[32:64:64])
	if v.Count() != 1 || len(v.refs) != 2 {
		t.Errorf("%d entries, %d references, want 1 and 2", v.Count(), len(v.refs))
	}
}

// Matrix: IO-12
func TestVecHoldsItsPiecesUntilReset(t *testing.T) {
	v := newVec(t, 1)
	freed := make(chan struct{})
	func() {
		b := new([1 << 12]byte)
		runtime.SetFinalizer(b, func(*[1 << 12]byte) { close(freed) })
		v.Append(b[:])
	}()
	for range 3 {
		runtime.GC()
	}
	select {
	case <-freed:
		t.Fatal("collected while in the list")
	default:
	}
	v.Reset()
	for {
		runtime.GC()
		select {
		case <-freed:
			return
		default:
			runtime.Gosched()
		}
	}
}

// Whatever the sizes of the pieces and of the partial sends, what is left is
// the tail of the whole, and rewind gives the whole back.
func TestVecAdvanceLeavesTheTail(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	arena := make([]byte, 1000)
	for i := range arena {
		arena[i] = byte(rnd.Uint32())
	}
	for range 500 {
		v := newVec(t, 8)
		var whole []byte
		for i := range 1 + rnd.IntN(8) {
			p := arena[i*100:][:1+rnd.IntN(100)] // of 100 bytes, the next one joins
			v.Append(p)
			whole = append(whole, p...)
		}
		for left := whole; len(left) > 0; {
			n := rnd.IntN(len(left) + 1)
			v.advance(n)
			left = left[n:]
			if got := v.rest(arena); !bytes.Equal(got, left) {
				t.Fatalf("%d bytes left, want %d, or they differ", len(got), len(left))
			}
			if v.Size() != len(whole) {
				t.Fatalf("Size %d while sending, want %d", v.Size(), len(whole))
			}
		}
		v.rewind()
		if got := v.rest(arena); !bytes.Equal(got, whole) {
			t.Fatal("rewind did not give the whole back")
		}
		v.Free()
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Matrix: IO-12
func TestMapRoundsUpToZeroedPages(t *testing.T) {
	page := os.Getpagesize()
	for _, size := range []int{1, page, page + 1} {
		m, err := Map(size)
		must(t, err)
		if n := len(m.Bytes()); n < size || n%page != 0 || n >= size+page {
			t.Errorf("Map(%d) has %d bytes", size, n)
		}
		for i, b := range m.Bytes() {
			if b != 0 {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
		for range 2 {
			must(t, m.Unmap())
		}
		if m.Bytes() != nil {
			t.Error("bytes after Unmap")
		}
	}
}

func TestMapRefusesNonsense(t *testing.T) {
	for _, size := range []int{0, -1, int(^uint(0) >> 1)} {
		if m, err := Map(size); err == nil || m != nil || size <= 0 && !errors.Is(err, unix.EINVAL) {
			t.Errorf("Map(%d): %v, %v", size, m, err)
		}
	}
}

// The kernel may still write into the memory of an operation that outlives its driver.
func TestTheMemoryOfAnOperationThatOutlivesItsDriverIsNotCollected(t *testing.T) {
	collected := make(chan bool, 2)
	func() {
		d, err := openEpoll(Config{}, "")
		must(t, err)
		e := &d.(*epollDriver).engine
		for mine := range 2 { // the other one shows that the collector was there
			p := make([]byte, 1<<20)
			runtime.AddCleanup(&p[0], func(mine bool) { collected <- mine }, mine == 1)
			if mine == 1 {
				v, err := NewVec(1)
				must(t, err)
				v.Append(p)
				e.ops.add(KindRead, MakeSocket(0), 1, v)
			}
		}
		e.err = unix.EIO // so that it does not wait
		if err := d.CloseDriver(); !errors.Is(err, unix.EBUSY) {
			t.Errorf("closed with an operation in flight: %v", err)
		}
	}()
	for other := false; !other; runtime.GC() {
		select {
		case mine := <-collected:
			if other = !mine; mine {
				t.Fatal("it was collected")
			}
		default:
			runtime.Gosched()
		}
	}
	if len(collected) > 0 {
		t.Error("it was collected")
	}
}
