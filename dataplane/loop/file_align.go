package loop

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/uring"
)

// ErrAlign is wrapped by an AlignError.
var ErrAlign = errors.New("loop: misaligned for direct I/O")

// AlignError says what of a request is not aligned as direct I/O on the file wants it.
type AlignError struct {
	File  string
	What  string // offset, length, or memory
	Value int64  // of offset and length
	Want  int    // it must be a multiple of so many bytes
}

// Error is one line.
func (e *AlignError) Error() string {
	if e.What == "memory" {
		return fmt.Sprintf("%s: %v: the memory must begin at a multiple of %d bytes", e.File, ErrAlign, e.Want)
	}
	return fmt.Sprintf("%s: %v: %s %d is no multiple of %d bytes", e.File, ErrAlign, e.What, e.Value, e.Want)
}

// Unwrap returns ErrAlign.
func (e *AlignError) Unwrap() error { return ErrAlign }

// misaligned says what of a transfer is not aligned. An empty What: nothing.
func (f *File) misaligned(pieces [][]byte, off, n int64) AlignError {
	grain := int64(f.align.Offset)
	switch {
	case grain == 0:
		return AlignError{}
	case off%grain != 0:
		return AlignError{f.name, "offset", off, int(grain)}
	case n%grain != 0:
		return AlignError{f.name, "length", n, int(grain)}
	}
	for _, p := range pieces {
		if int64(len(p))%grain != 0 {
			return AlignError{f.name, "length", int64(len(p)), int(grain)}
		}
		if !uring.Aligned(p, f.align.Memory) {
			return AlignError{f.name, "memory", 0, f.align.Memory}
		}
	}
	return AlignError{}
}

// choose says which memory the kernel moves: that of the request, a buffer of the core
// that the caller gets (ReadBuffer), or one that is copied from or to. A buffer is taken
// when the request begins (place).
func (f *File) choose(op *FileOp) error {
	op.lends, op.bounces = op.pieces == nil, false
	wrong := f.misaligned(op.pieces, op.off, op.length)
	switch {
	case op.lends || wrong.What != "" && f.opt.Bounce && op.kind == uring.KindRead:
		op.skip = int(op.off % max(1, int64(f.align.Offset)))
	case wrong.What == "":
		return nil
	case f.opt.Bounce && f.misaligned(nil, op.off, op.length).What == "": // only memory and pieces are not
	default:
		e := wrong // what escapes is only made here
		return &e
	}
	op.bounces = !op.lends
	return nil
}

// place takes the buffer of the request, if it has one. One that is copied from or to is
// as large as memory of the caller, and no larger than what the driver has: it needs no
// bound of its own.
func (op *FileOp) place() error {
	if !op.lends && !op.bounces {
		return nil
	}
	c := op.file.core
	b, err := c.pool.get(max(pageSize, op.file.room(op)))
	switch {
	case err != nil:
		return err
	case op.bounces:
		op.bounce = b
		return nil
	}
	b.account, b.charged = op.whose, op.charged
	op.own, op.charged = b, 0
	return nil
}

// uncharge gives back what was promised to a request that has not begun.
func (op *FileOp) uncharge() {
	if op.charged > 0 {
		op.file.core.reads.giveBack(op.whose, op.charged)
		op.charged = 0
	}
}

// room is how many bytes the kernel moves for op through a buffer: whole blocks.
func (f *File) room(op *FileOp) int {
	grain := max(1, f.align.Offset)
	return (op.skip + int(op.length) + grain - 1) / grain * grain
}

// fill puts the memory into the request's list.
func (op *FileOp) fill() {
	b := op.own
	if b == nil {
		b = op.bounce
	}
	if b == nil {
		for _, p := range op.pieces {
			op.vec.Append(p)
		}
		return
	}
	data := b.b[:op.file.room(op)]
	if op.kind == uring.KindWrite {
		at := 0
		for _, p := range op.pieces {
			at += copy(data[at:], p)
		}
	}
	op.vec.Append(data)
}

// arrived is how many of n bytes that were read belong to the request, and puts them
// where they belong.
func (op *FileOp) arrived(n int) int {
	n = int(min(int64(max(0, n-op.skip)), op.length))
	switch {
	case op.own != nil:
		op.Data = op.own.b[op.skip : op.skip+n]
	case op.bounce != nil:
		data := op.bounce.b[op.skip : op.skip+n]
		for _, p := range op.pieces {
			data = data[copy(p, data):]
		}
	}
	return n
}
