package loop

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/uring"
)

// errAlign is wrapped by the error of a request on a file with direct I/O whose offset,
// length or memory is not aligned. The error names which.
var errAlign = errors.New("loop: misaligned for direct I/O")

// aligned returns an error that names the misaligned part of a transfer.
func (f *File) aligned(pieces [][]byte, off, n int64) error {
	grain := int64(f.align.Offset)
	wrong := func(what string, value int64) error {
		return fmt.Errorf("%s: %w: %s %d is no multiple of %d bytes", f.name, errAlign, what, value, grain)
	}
	switch {
	case grain == 0:
		return nil
	case off%grain != 0:
		return wrong("offset", off)
	case n%grain != 0:
		return wrong("length", n)
	}
	for _, p := range pieces {
		if int64(len(p))%grain != 0 {
			return wrong("length", int64(len(p)))
		}
		if !uring.Aligned(p, f.align.Memory) {
			return fmt.Errorf("%s: %w: the memory must begin at a multiple of %d bytes", f.name, errAlign, f.align.Memory)
		}
	}
	return nil
}

// choose says which memory the kernel moves: that of the request, or a buffer of the core
// that the caller gets (ReadBuffer). The buffer is taken when the request begins (place).
func (f *File) choose(op *FileOp) error {
	op.lends = op.pieces == nil
	if !op.lends {
		return f.aligned(op.pieces, op.off, op.length)
	}
	op.skip = int(op.off % max(1, int64(f.align.Offset)))
	return nil
}

// place takes the buffer of a ReadBuffer.
func (op *FileOp) place() error {
	if !op.lends {
		return nil
	}
	c := op.file.core
	b, err := c.pool.get(max(pageSize, op.file.room(op)))
	if err != nil {
		return err
	}
	b.account, b.charged = op.whose, op.charged
	op.own, op.charged = b, 0
	return nil
}

// uncharge gives back the reserved bytes of a request that has not begun.
func (op *FileOp) uncharge() {
	if op.charged > 0 {
		op.file.core.reads.giveBack(op.whose, op.charged)
		op.charged = 0
	}
}

// room is the number of bytes that the kernel moves for op through a buffer: whole blocks.
func (f *File) room(op *FileOp) int {
	grain := max(1, f.align.Offset)
	return (op.skip + int(op.length) + grain - 1) / grain * grain
}

// fill puts the memory into the request's list.
func (op *FileOp) fill() {
	if op.own != nil {
		op.vec.Append(op.own.b[:op.file.room(op)])
		return
	}
	for _, p := range op.pieces {
		op.vec.Append(p)
	}
}

// arrived is the number of bytes, of n that were read, that belong to the request.
func (op *FileOp) arrived(n int) int {
	n = int(min(int64(max(0, n-op.skip)), op.length))
	if op.own != nil {
		op.Data = op.own.b[op.skip : op.skip+n]
	}
	return n
}
