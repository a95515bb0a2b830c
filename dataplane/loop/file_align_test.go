package loop

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/ringmsgr/ringmsgr/uring"
)

func TestMisalignedRequestsAreNamed(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, nil)
	buf, err := b.c.Lend(2 * unit)
	must(t, err)
	defer b.c.TakeBack(buf)
	p := buf.Bytes()[:unit]
	for _, c := range []struct {
		p    []byte
		off  int64
		want AlignError
	}{
		{p, 100, AlignError{"/f", "offset", 100, 512}},
		{p[:1000], 0, AlignError{"/f", "length", 1000, 512}},
		{buf.Bytes()[8 : 8+unit], 0, AlignError{"/f", "memory", 0, 512}},
	} {
		var got *AlignError
		for _, err := range []error{b.f.WriteAt(&newRequest().FileOp, c.p, c.off, Written), b.f.ReadAt(&newRequest().FileOp, c.p, c.off)} {
			if !errors.As(err, &got) || *got != c.want || !errors.Is(err, ErrAlign) {
				t.Errorf("%v, want %v", err, &c.want)
			}
		}
	}
	if b.c.Counts().Files.Ops != 0 {
		t.Error("requests that were refused are counted")
	}
}

func TestMisalignedRequestsBounceWhenAskedTo(t *testing.T) {
	opt := FileOptions{Direct: uring.Direct, Bounce: true}
	b := newFileBed(t, opt, nil)
	b.d.ParkFiles = false
	inUse := b.c.pool.inUse
	content := make([]byte, 3*unit)
	for i := range content {
		content[i] = byte(i * 7)
	}
	w := newRequest()
	must(t, b.f.WriteAtv(&w.FileOp, [][]byte{content[:100], content[100:]}, 0, Written)) // Go memory, pieces of any length
	b.settle()
	b.ended(w, nil)
	if !bytes.Equal(b.d.Disk.Content("/f"), content) {
		t.Error("other bytes were written")
	}
	for _, c := range [][2]int{{0, 1}, {511, 2}, {100, 5000}, {unit - 1, 2 * unit}} {
		off, n := c[0], c[1]
		got := make([]byte, n)
		r := newRequest()
		must(t, b.f.ReadAt(&r.FileOp, got, int64(off)))
		b.settle()
		b.ended(r, nil)
		if r.N != n || !bytes.Equal(got, content[off:off+n]) {
			t.Errorf("read %d at %d: %d, or other bytes", n, off, r.N)
		}
	}
	r := newRequest()
	must(t, b.f.ReadAt(&r.FileOp, make([]byte, 200), int64(len(content)-100)))
	b.settle()
	b.ended(r, io.EOF)
	if r.N != 100 {
		t.Errorf("%d bytes before the end", r.N)
	}
	if err := b.f.WriteAt(&newRequest().FileOp, content[:100], 0, Written); !errors.Is(err, ErrAlign) {
		t.Errorf("a part of a block is written: %v", err)
	}
	if b.c.pool.inUse != inUse {
		t.Errorf("%d bytes of the pool are in use, %d before", b.c.pool.inUse, inUse)
	}
}

func TestABufferThatWasReadIntoGoesBackByItself(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, nil)
	b.d.ParkFiles = false
	w := newRequest()
	buf, err := b.c.Lend(2 * unit)
	must(t, err)
	copy(buf.Bytes()[1000:], "hello")
	must(t, b.f.WriteAt(&w.FileOp, buf.Bytes()[:2*unit], 0, Written))
	b.settle()
	b.c.TakeBack(buf)
	inUse := b.c.pool.inUse
	var taken *Buffer
	again := 0
	r := newRequest()
	r.Done = func(_ *Core, op *FileOp) {
		if r.done++; string(op.Data) != "hello" || op.Err != nil || op.N != 5 {
			t.Errorf("%q, %v", op.Data, op.Err)
		}
		switch {
		case again == 0:
			again++
			must(t, b.f.ReadBuffer(op, 5, 1000))
		case again == 2:
			taken = op.TakeBuffer()
		}
	}
	must(t, b.f.ReadBuffer(&r.FileOp, 5, 1000))
	b.settle()
	if r.done != 2 || b.c.pool.inUse != inUse || r.Data != nil {
		t.Fatalf("%d ends, %d bytes in use, %d before", r.done, b.c.pool.inUse, inUse)
	}
	again = 2
	must(t, b.f.ReadBuffer(&r.FileOp, 5, 1000))
	b.settle()
	if taken == nil || b.c.pool.inUse == inUse || !onPage(taken.Bytes()) {
		t.Fatal("the buffer that was taken has gone back, or is not aligned")
	}
	var w2 Write
	must(t, w2.begin(b.c))
	w2.Refer(r.Data)
	w2.Hold(taken) // as a framer does that sends it
	w2.release(b.c)
	if b.c.pool.inUse != inUse {
		t.Error("a write that has ended keeps it")
	}
}
