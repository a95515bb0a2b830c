package rados

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// WriteOp is a compound operation that changes an object, or makes one. The zero value has no step. Data that
// it is given must not change until the operation has returned, and after an ErrUnknown never.
type WriteOp struct{ common }

// SetTime has the object's time of modification be t, not the present.
func (o *WriteOp) SetTime(t time.Time) { o.mtime = t }

// Create makes the object. If exclusive it fails with EEXIST where there is one.
func (o *WriteOp) Create(exclusive bool) {
	op := osdop.Op{Code: osdop.CodeCreate}
	if exclusive {
		op.Flags = osdop.OpExclusive
	}
	o.add(op)
}

// Write writes at offset.
func (o *WriteOp) Write(offset uint64, data []byte) {
	o.add(osdop.Extent(osdop.CodeWrite, offset, uint64(len(data)), data))
}

// WriteFull replaces the content.
func (o *WriteOp) WriteFull(data []byte) { o.add(osdop.Input(osdop.CodeWriteFull, data)) }

// Append writes at the end.
func (o *WriteOp) Append(data []byte) { o.add(osdop.Input(osdop.CodeAppend, data)) }

// WriteSame repeats a pattern over length bytes, a multiple of it.
func (o *WriteOp) WriteSame(offset, length uint64, pattern []byte) {
	op := osdop.Extent(osdop.CodeWriteSame, offset, length, pattern)
	le.PutUint64(op.Args[16:], uint64(len(pattern)))
	o.add(op)
}

// Truncate sets the size of an object that exists.
func (o *WriteOp) Truncate(size uint64) { o.add(osdop.Extent(osdop.CodeTruncate, size, 0, nil)) }

// Zero makes zeros of a range, and does not make the object longer. Without bytes it is no step: an OSD would
// abort.
func (o *WriteOp) Zero(offset, length uint64) {
	if length > 0 {
		o.add(osdop.Extent(osdop.CodeZero, offset, length, nil))
	}
}

// Remove removes the object.
func (o *WriteOp) Remove() { o.add(osdop.Op{Code: osdop.CodeRemove}) }

// SetXattr sets an attribute.
func (o *WriteOp) SetXattr(name string, value []byte) {
	o.add(osdop.Xattr(osdop.CodeSetXattr, name, value))
}

// RemoveXattr removes an attribute.
func (o *WriteOp) RemoveXattr(name string) { o.add(osdop.Xattr(osdop.CodeRmXattr, name, nil)) }

// SetOmap sets values of the omap.
func (o *WriteOp) SetOmap(values map[string][]byte) {
	b := le.AppendUint32(nil, uint32(len(values)))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b = wire.AppendBlob(wire.AppendString(b, key), values[key])
	}
	o.add(osdop.Input(osdop.CodeOmapSet, b))
}

// SetOmapHeader sets the header of the omap.
func (o *WriteOp) SetOmapHeader(header []byte) { o.add(osdop.Input(osdop.CodeOmapSetHead, header)) }

// RemoveOmap removes keys of the omap.
func (o *WriteOp) RemoveOmap(keys ...string) {
	o.add(osdop.Input(osdop.CodeOmapRemove, appendStrings(nil, keys)))
}

// RemoveOmapRange removes the keys of the omap from one up to another, which stays.
func (o *WriteOp) RemoveOmapRange(from, to string) {
	o.add(osdop.Input(osdop.CodeOmapRmRange, wire.AppendString(wire.AppendString(nil, from), to)))
}

// ClearOmap removes all of the omap.
func (o *WriteOp) ClearOmap() { o.add(osdop.Op{Code: osdop.CodeOmapClear}) }

// Rollback gives the object the state of a snapshot.
func (o *WriteOp) Rollback(snap uint64) { o.add(osdop.Extent(osdop.CodeRollback, snap, 0, nil)) }

// CopyFrom makes the object a copy of another one, of the same cluster, as it is at the snapshot of its
// pool's view; version is the one that it must have, 0: any.
func (o *WriteOp) CopyFrom(from Object, version uint64) {
	source := from.target()
	in := source.AppendLocator(wire.AppendString(nil, source.Name))
	o.add(osdop.Extent(osdop.CodeCopyFrom, cmp.Or(from.pool.snap, osdop.Head), version, in))
}

// AllocHint says how large the object and the writes on it will be. An OSD may ignore it.
func (o *WriteOp) AllocHint(size, write uint64) {
	op := osdop.Extent(osdop.CodeAllocHint, size, write, nil)
	op.Flags = osdop.OpFailOK
	o.add(op)
}
