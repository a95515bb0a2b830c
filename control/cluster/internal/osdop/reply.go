package osdop

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Reply is MOSDOpReply as far as it concerns the whole request; the results of the operations are in them.
type Reply struct {
	Result      int32  // of the first operation that failed; negative: an errno
	Epoch       uint32 // of the OSD's map
	UserVersion uint64 // of the object, for AssertVersion
	Flags       uint64
	Attempt     int32   // that is answered; negative: not said
	Redirect    *Object // where to send the request, which keeps its name if this has none; nil: this is the answer
	// Message has the outputs; nil: there are none that could go away. The engine sets it.
	Message interface{ Release() }
}

// Release gives the memory of the outputs back. It may be called twice.
func (r *Reply) Release() {
	if r.Message != nil {
		r.Message.Release()
		r.Message = nil
	}
}

// DecodeReply reads MOSDOpReply version 8 for a request with these operations, and sets their results. Their
// outputs alias data.
func DecodeReply(front, data []byte, into *Reply, ops []Op) error {
	r := wire.NewReader(front)
	r.Skip(r.Count(1)) // object
	r.Skip(pgSize)
	*into = Reply{Flags: r.U64(), Result: r.S32()}
	r.Skip(12) // a version of older releases
	into.Epoch = r.U32()
	n := r.Count(opSize + 4)
	if r.Err() == nil && n != len(ops) {
		r.Fail(fmt.Errorf("%w: %d operations in answer to %d", wire.ErrMalformed, n, len(ops)))
	}
	for i := range ops[:min(n, len(ops))] {
		r.Skip(opSize - 4) // an OSD may have made another operation of it: a truncation of zeros at the end
		size := uint64(r.U32())
		if r.Err() != nil {
			break
		}
		if size > uint64(len(data)) {
			r.Fail(fmt.Errorf("%w: operation %d, %#x: output of %d bytes in %d", wire.ErrMalformed,
				i, ops[i].Code, size, len(data)))
			break
		}
		ops[i].Out, data = data[:size:size], data[size:]
	}
	into.Attempt = r.S32()
	for i := range ops[:min(n, len(ops))] {
		ops[i].Result = r.S32()
	}
	r.Skip(12) // version
	into.UserVersion = r.U64()
	if r.Bool() {
		into.Redirect = readRedirect(r)
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("MOSDOpReply: %w", err)
	}
	return nil
}

func readRedirect(r *wire.Reader) *Object {
	o := &Object{}
	r.Envelope(1, func(_ uint8, r *wire.Reader) {
		*o = readLocator(r)
		o.Name = r.Str()
	})
	return o
}

// readLocator reads object_locator_t.
func readLocator(r *wire.Reader) (o Object) {
	r.Envelope(6, func(_ uint8, r *wire.Reader) {
		o.Pool = r.S64()
		r.U32()
		o.Locator, o.Namespace = r.Str(), r.Str()
		if hash := r.S64(); hash >= 0 {
			o.ByHash, o.Hash = true, uint32(hash)
		}
	})
	return o
}
