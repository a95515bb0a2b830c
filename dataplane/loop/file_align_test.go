package loop

import (
	"errors"
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
		want string
	}{
		{p, 100, "offset 100 is no multiple of 512 bytes"},
		{p[:1000], 0, "length 1000 is no multiple of 512 bytes"},
		{buf.Bytes()[8 : 8+unit], 0, "the memory must begin at a multiple of 512 bytes"},
	} {
		for _, err := range []error{b.f.WriteAt(&newRequest().FileOp, c.p, c.off, Written), b.f.ReadAt(&newRequest().FileOp, c.p, c.off)} {
			if !errors.Is(err, errAlign) || err.Error() != "/f: "+errAlign.Error()+": "+c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
	}
	if b.c.Counts().Files.Ops != 0 {
		t.Error("requests that were refused are counted")
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
