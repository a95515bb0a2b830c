package rados

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// PieceSize is the most that one operation reads or writes, in bytes. It is well below what a frame and an
// OSD take. Larger data goes piece by piece, front to back: others may see the object grow, and a write that
// fails may have brought a part.
const PieceSize = 16 << 20

// Object is an object of a pool, whether it exists or not. It is a value; any goroutine. Each method is one
// operation on the OSD, unless it has data beyond PieceSize. What is rare has no method, and is a step of a
// ReadOp or WriteOp.
//
// A read of an object that does not exist fails with ENOENT, for which errors.Is(err, fs.ErrNotExist) is
// true; a write makes it, but for Truncate, Remove and WriteOp.Zero.
type Object struct {
	pool Pool
	name string
}

// Name is that of the object.
func (o Object) Name() string { return o.name }

// Pool is the pool, as it was seen when the object was named.
func (o Object) Pool() Pool { return o.pool }

func (o Object) target() osdop.Object {
	return osdop.Object{Pool: o.pool.id, Namespace: o.pool.ns, Locator: o.pool.key, Name: o.name}
}

// request makes a request without operations.
func (o Object) request(write bool) osdop.Request {
	r := osdop.Request{Target: o.target(), Flags: uint32(o.pool.flags), Snap: o.pool.snap}
	if !write {
		r.Flags |= osdop.FlagRead
		return r
	}
	r.Flags, r.MTime, r.SnapSeq, r.Snaps = r.Flags|osdop.FlagWrite, time.Now(), o.pool.seq, o.pool.snaps
	return r
}

// do carries operations out. The answer is to be released.
func (o Object) do(ctx context.Context, r osdop.Request, ops []osdop.Op, into []byte) (osdop.Reply, error) {
	reply, err := o.pool.c.engine.Do(ctx, r, ops, into)
	return reply, o.explained(err)
}

// write carries out a WriteOp of one step.
func (o Object) write(ctx context.Context, step func(op *WriteOp)) error {
	var op WriteOp
	step(&op)
	_, err := o.Operate(ctx, &op)
	return err
}

// read carries out a ReadOp of one step.
func read[T any](ctx context.Context, o Object, step func(op *ReadOp) *Result[T]) (T, error) {
	var op ReadOp
	result := step(&op)
	if _, err := o.Operate(ctx, &op); err != nil {
		return result.Value, err
	}
	return result.Value, result.Err
}

// ReadInto reads from offset on into p, until p is full or the object ends, and returns how many bytes there
// are. Large reads go from the socket straight into p, if they come neither encrypted nor compressed: p can
// be pages for direct I/O. The client does not touch p before or after; its content behind these bytes, or
// after an error, is undefined.
func (o Object) ReadInto(ctx context.Context, offset uint64, p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(n+PieceSize, len(p))]
		ops := [1]osdop.Op{osdop.Extent(osdop.CodeRead, offset+uint64(n), uint64(len(piece)), nil)} // on the stack
		reply, err := o.do(ctx, o.request(false), ops[:], piece)
		reply.Release()
		got := len(ops[0].Out)
		if err == nil && got > len(piece) {
			err = fmt.Errorf("%w: %d bytes in answer to a read of %d", ErrMessage, got, len(piece))
		}
		if err != nil {
			return n, err
		}
		if n += got; got < len(piece) {
			break
		}
	}
	return n, nil
}

// Read returns at most n bytes from offset on; fewer, or none, where the object ends.
func (o Object) Read(ctx context.Context, offset uint64, n int) ([]byte, error) {
	p := make([]byte, max(n, 0))
	got, err := o.ReadInto(ctx, offset, p)
	if err != nil {
		return nil, err
	}
	return p[:got:got], nil
}

// ReadAll returns the whole object. A write meanwhile may be in one of its pieces and not in another.
func (o Object) ReadAll(ctx context.Context) ([]byte, error) {
	piece, err := read(ctx, o, func(op *ReadOp) *Result[[]byte] { return op.Read(0, PieceSize) })
	for all := piece; ; all = append(all, piece...) {
		if err != nil || len(piece) < PieceSize {
			return all, err
		}
		piece, err = o.Read(ctx, uint64(len(all)), PieceSize)
	}
}

// Stat returns size and time.
func (o Object) Stat(ctx context.Context) (Info, error) { return read(ctx, o, (*ReadOp).Stat) }

// Write writes at offset. The data must not change before it returns, and after an ErrUnknown never; that
// holds for all writes.
func (o Object) Write(ctx context.Context, offset uint64, data []byte) error {
	_, err := o.pieces(ctx, osdop.CodeWrite, offset, data)
	return err
}

// WriteFull replaces the content.
func (o Object) WriteFull(ctx context.Context, data []byte) error {
	_, err := o.pieces(ctx, osdop.CodeWriteFull, 0, data)
	return err
}

// Append writes at the end, exactly once.
func (o Object) Append(ctx context.Context, data []byte) error {
	_, err := o.pieces(ctx, osdop.CodeAppend, 0, data)
	return err
}

// pieces writes data, with one operation for each piece, and returns how many bytes are written. The
// operation of this code is the first one; those behind the first piece of WriteFull are Write.
func (o Object) pieces(ctx context.Context, code uint16, offset uint64, data []byte) (n int, err error) {
	for {
		piece := data[n:min(n+PieceSize, len(data))]
		ops := [1]osdop.Op{osdop.Extent(code, offset, uint64(len(piece)), piece)} // on the stack
		reply, err := o.do(ctx, o.request(true), ops[:], nil)
		if reply.Release(); err != nil {
			return n, err
		}
		if n += len(piece); n == len(data) {
			return n, nil
		}
		if code != osdop.CodeAppend {
			code, offset = osdop.CodeWrite, offset+uint64(len(piece))
		}
	}
}

// Truncate sets the size of an object that exists.
func (o Object) Truncate(ctx context.Context, size uint64) error {
	return o.write(ctx, func(op *WriteOp) { op.Truncate(size) })
}

// Create makes the object. If exclusive it fails with EEXIST where there is one.
func (o Object) Create(ctx context.Context, exclusive bool) error {
	return o.write(ctx, func(op *WriteOp) { op.Create(exclusive) })
}

// Remove removes the object, also where the cluster is full.
func (o Object) Remove(ctx context.Context) error {
	o.pool = o.pool.WithFlags(FullForce)
	return o.write(ctx, (*WriteOp).Remove)
}

// Rollback gives the object the state of a snapshot; the pool's view has the snapshot context, if they are
// self-managed.
func (o Object) Rollback(ctx context.Context, snap uint64) error {
	return o.write(ctx, func(op *WriteOp) { op.Rollback(snap) })
}

// Xattr returns an attribute; ENODATA: there is none of this name.
func (o Object) Xattr(ctx context.Context, name string) ([]byte, error) {
	return read(ctx, o, func(op *ReadOp) *Result[[]byte] { return op.Xattr(name) })
}

// Xattrs returns all attributes.
func (o Object) Xattrs(ctx context.Context) (map[string][]byte, error) {
	return read(ctx, o, (*ReadOp).Xattrs)
}

// SetXattr sets an attribute.
func (o Object) SetXattr(ctx context.Context, name string, value []byte) error {
	return o.write(ctx, func(op *WriteOp) { op.SetXattr(name, value) })
}

// RemoveXattr removes an attribute.
func (o Object) RemoveXattr(ctx context.Context, name string) error {
	return o.write(ctx, func(op *WriteOp) { op.RemoveXattr(name) })
}

// Omap goes through the values of the omap whose keys lie behind one and begin with prefix, in the order of
// the keys, a page at a time. An error is its last element.
func (o Object) Omap(ctx context.Context, after, prefix string) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		after := after
		for more := true; more; {
			page, err := read(ctx, o, func(op *ReadOp) *Result[Page] { return op.Omap(after, prefix, 512) })
			more = page.More
			stands := more && len(page.Pairs) == 0
			for _, p := range page.Pairs {
				if stands = p.Key <= after; stands {
					break
				}
				if after = p.Key; !yield(p, nil) {
					return
				}
			}
			if stands && err == nil {
				err = fmt.Errorf("%w: an omap that does not go on", ErrMessage)
			}
			if err != nil {
				yield(Pair{}, err)
				return
			}
		}
	}
}

// SetOmap sets values of the omap.
func (o Object) SetOmap(ctx context.Context, values map[string][]byte) error {
	return o.write(ctx, func(op *WriteOp) { op.SetOmap(values) })
}

// RemoveOmap removes keys of the omap.
func (o Object) RemoveOmap(ctx context.Context, keys ...string) error {
	return o.write(ctx, func(op *WriteOp) { op.RemoveOmap(keys...) })
}

// ClearOmap removes all of the omap.
func (o Object) ClearOmap(ctx context.Context) error { return o.write(ctx, (*WriteOp).ClearOmap) }

// Watchers lists the watchers of the object.
func (o Object) Watchers(ctx context.Context) ([]Watcher, error) {
	return read(ctx, o, (*ReadOp).Watchers)
}

// Clones lists the states of the object that snapshots keep, the present one last, and the newest of the
// snapshots.
func (o Object) Clones(ctx context.Context) (list []Clone, newest uint64, err error) {
	o.pool.snap = osdop.SnapDir
	all, err := read(ctx, o, (*ReadOp).clones)
	return all.list, all.newest, err
}
