package rados

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// ErrSkipped: a step of an operation did not run, as one before it failed, or the whole.
var ErrSkipped = errors.New("rados: a step before failed, or the whole operation")

// Result is that of a step of a compound operation. It is set when the operation returns, also when that fails.
type Result[T any] struct {
	Value T
	Err   error // of this step: an errno, or ErrSkipped
}

// Op is a compound operation: steps that one OSD carries out on one object, in their order, all of them or none. It is a ReadOp or
// a WriteOp. It may be used again, but not by two goroutines at a time.
type Op interface{ list() *steps }

// steps are the operations, and the functions that take their results.
type steps struct {
	ops    []osdop.Op
	finish []func(op *osdop.Op, skipped error)
	mtime  time.Time
}

func (s *steps) list() *steps { return s }

// add adds an operation without output.
func (s *steps) add(op osdop.Op) {
	addResult(s, op, func([]byte) (struct{}, error) { return struct{}{}, nil })
}

// addResult adds an operation, and has decode read its output.
func addResult[T any](s *steps, op osdop.Op, decode func(out []byte) (T, error)) *Result[T] {
	r := new(Result[T])
	s.ops = append(s.ops, op)
	s.finish = append(s.finish, func(op *osdop.Op, skipped error) {
		*r = Result[T]{Err: skipped}
		switch {
		case skipped != nil:
		case op.Result < 0:
			r.Err = reason(op.Result)
		default:
			r.Value, r.Err = decode(op.Out)
		}
	})
	return r
}

// cloned keeps an output.
func cloned(out []byte) ([]byte, error) { return bytes.Clone(out), nil }

// common are the steps that reads and writes have.
type common struct{ steps }

// AssertExists has the operation fail with ENOENT if the object does not exist.
func (o *common) AssertExists() { o.add(osdop.Stat()) }

// AssertVersion has the operation fail, unless the object has this version (Object.Operate): with ERANGE if the object is
// newer, EOVERFLOW if it is older.
func (o *common) AssertVersion(v uint64) { o.add(osdop.AssertVersion(v)) }

// CompareExtent has the operation fail unless the object has these bytes at offset. The error is a *MismatchError.
func (o *common) CompareExtent(offset uint64, data []byte) { o.add(osdop.CompareExtent(offset, data)) }

// Comparison says how a stored value has to compare to the one that is given.
type Comparison uint8

// The comparisons. Of omaps there are Equal, Less and Greater.
const (
	Equal          = Comparison(osdop.Equal)
	NotEqual       = Comparison(osdop.NotEqual)
	Greater        = Comparison(osdop.Greater)
	GreaterOrEqual = Comparison(osdop.GreaterOrEqual)
	Less           = Comparison(osdop.Less)
	LessOrEqual    = Comparison(osdop.LessOrEqual)
)

// CompareXattr has the operation fail with ECANCELED unless an attribute compares to value.
func (o *common) CompareXattr(name string, c Comparison, value []byte) {
	o.add(osdop.CompareXattr(name, uint8(c), value))
}

// CompareOmap has the operation fail with ECANCELED unless a value of the omap compares to one.
func (o *common) CompareOmap(key string, c Comparison, value []byte) {
	o.add(osdop.OmapCompare(key, uint8(c), value))
}

// Exec calls a method of a class of the OSD. In a WriteOp its output comes with ReturnOutputs alone.
func (o *common) Exec(class, method string, in []byte) *Result[[]byte] {
	return addResult(&o.steps, osdop.Call(class, method, in), cloned)
}

// ReadOp is a compound operation that changes nothing. The zero value has no step.
type ReadOp struct{ common }

// Read reads; length 0: to the end.
func (o *ReadOp) Read(offset, length uint64) *Result[[]byte] {
	return addResult(&o.steps, osdop.Read(offset, length), cloned)
}

// Sparse is the result of a sparse read.
type Sparse struct {
	Extents []Extent // that are stored; all between them is zeros
	Data    []byte   // of the extents, one after the other
}

// Extent is a part of an object: Offset and Length, in bytes.
type Extent = osdop.Extent

// SparseRead reads the extents that are stored.
func (o *ReadOp) SparseRead(offset, length uint64) *Result[Sparse] {
	return addResult(&o.steps, osdop.SparseRead(offset, length), func(out []byte) (s Sparse, err error) {
		s.Extents, s.Data, err = osdop.SparseOutput(bytes.Clone(out))
		return s, err
	})
}

// Info is the result of Stat.
type Info struct {
	Size    uint64    `json:"size"` // bytes
	ModTime time.Time `json:"mtime"`
}

// Stat asks for size and time.
func (o *ReadOp) Stat() *Result[Info] {
	return addResult(&o.steps, osdop.Stat(), func(out []byte) (i Info, err error) {
		i.Size, i.ModTime, err = osdop.StatOutput(out)
		return i, err
	})
}

// ChecksumKind is an algorithm.
type ChecksumKind uint8

// The kinds of checksums. That of XXH64 has 64 bits, the others 32.
const (
	XXH32  = ChecksumKind(osdop.XXH32)
	XXH64  = ChecksumKind(osdop.XXH64)
	CRC32C = ChecksumKind(osdop.CRC32C)
)

// Checksum has the OSD compute the checksums of chunks of this many bytes, each begun with seed; chunk 0: one for all, or none behind the end.
func (o *ReadOp) Checksum(kind ChecksumKind, seed, offset, length uint64, chunk uint32) *Result[[]uint64] {
	return addResult(&o.steps, osdop.Checksum(uint8(kind), seed, offset, length, chunk), func(out []byte) ([]uint64, error) {
		return osdop.ChecksumOutput(uint8(kind), out)
	})
}

// Xattr asks for an attribute; ENODATA: there is none of this name.
func (o *ReadOp) Xattr(name string) *Result[[]byte] {
	return addResult(&o.steps, osdop.GetXattr(name), cloned)
}

// Xattrs asks for all attributes.
func (o *ReadOp) Xattrs() *Result[map[string][]byte] {
	return addResult(&o.steps, osdop.GetXattrs(), osdop.MapOutput)
}

// Pair is a value of an omap: its Key, and the Value, which is the caller's.
type Pair = osdop.Pair

// Page is a part of an omap, in the order of its keys.
type Page struct {
	Pairs []Pair
	More  bool // it was cut: ask again, behind the last key
}

// Omap asks for at most limit values of the omap, behind a key, whose keys begin with prefix. OSDs bring at most 1024.
func (o *ReadOp) Omap(after, prefix string, limit uint64) *Result[Page] {
	return addResult(&o.steps, osdop.OmapVals(after, prefix, limit), func(out []byte) (p Page, err error) {
		p.Pairs, p.More, err = osdop.OmapOutput(out)
		return p, err
	})
}

// OmapKeys is Omap without values and prefix.
func (o *ReadOp) OmapKeys(after string, limit uint64) *Result[Page] {
	return addResult(&o.steps, osdop.OmapKeys(after, limit), func(out []byte) (p Page, err error) {
		keys, more, err := osdop.KeysOutput(out)
		for _, key := range keys {
			p.Pairs = append(p.Pairs, Pair{Key: key})
		}
		p.More = more
		return p, err
	})
}

// OmapByKeys asks for the values of those keys that there are.
func (o *ReadOp) OmapByKeys(keys ...string) *Result[map[string][]byte] {
	return addResult(&o.steps, osdop.OmapByKeys(keys), osdop.MapOutput)
}

// OmapHeader asks for the header of the omap.
func (o *ReadOp) OmapHeader() *Result[[]byte] { return addResult(&o.steps, osdop.OmapHeader(), cloned) }

// Watcher is a client that watches an object: Client and ID are its type and global id, Cookie tells its watches of the object
// apart, Addr is its address, and the OSD forgets it when it has not heard from it for Timeout.
type Watcher = osdop.Watcher

// Watchers asks for the watchers of the object.
func (o *ReadOp) Watchers() *Result[[]Watcher] {
	return addResult(&o.steps, osdop.Watchers(), osdop.WatchersOutput)
}

// WriteOp is a compound operation that changes an object, or makes one. The zero value has no step. Data that it is given must not
// change until the operation has returned, and after an ErrUnknown never.
type WriteOp struct{ common }

// SetTime has the object's time of modification be t, not the present.
func (o *WriteOp) SetTime(t time.Time) { o.mtime = t }

// Create makes the object. If exclusive it fails with EEXIST where there is one.
func (o *WriteOp) Create(exclusive bool) { o.add(osdop.Create(exclusive)) }

// Write writes at offset.
func (o *WriteOp) Write(offset uint64, data []byte) { o.add(osdop.Write(offset, data)) }

// WriteFull replaces the content.
func (o *WriteOp) WriteFull(data []byte) { o.add(osdop.WriteFull(data)) }

// Append writes at the end.
func (o *WriteOp) Append(data []byte) { o.add(osdop.Append(data)) }

// WriteSame repeats a pattern over length bytes, a multiple of it.
func (o *WriteOp) WriteSame(offset, length uint64, pattern []byte) {
	o.add(osdop.WriteSame(offset, length, pattern))
}

// Truncate sets the size of an object that exists.
func (o *WriteOp) Truncate(size uint64) { o.add(osdop.Truncate(size)) }

// Zero makes zeros of a range. Without bytes it is no step: an OSD would abort.
func (o *WriteOp) Zero(offset, length uint64) {
	if length > 0 {
		o.add(osdop.Zero(offset, length))
	}
}

// Remove removes the object.
func (o *WriteOp) Remove() { o.add(osdop.Remove()) }

// SetXattr sets an attribute.
func (o *WriteOp) SetXattr(name string, value []byte) { o.add(osdop.SetXattr(name, value)) }

// RemoveXattr removes an attribute.
func (o *WriteOp) RemoveXattr(name string) { o.add(osdop.RemoveXattr(name)) }

// SetOmap sets values of the omap.
func (o *WriteOp) SetOmap(values map[string][]byte) { o.add(osdop.OmapSet(values)) }

// SetOmapHeader sets the header of the omap.
func (o *WriteOp) SetOmapHeader(header []byte) { o.add(osdop.OmapSetHeader(header)) }

// RemoveOmap removes keys of the omap.
func (o *WriteOp) RemoveOmap(keys ...string) { o.add(osdop.OmapRemove(keys)) }

// RemoveOmapRange removes the keys of the omap from one up to another, which stays.
func (o *WriteOp) RemoveOmapRange(from, to string) { o.add(osdop.OmapRemoveRange(from, to)) }

// ClearOmap removes all of the omap.
func (o *WriteOp) ClearOmap() { o.add(osdop.OmapClear()) }

// Rollback gives the object the state of a snapshot.
func (o *WriteOp) Rollback(snap uint64) { o.add(osdop.Rollback(snap)) }

// CopyFrom makes the object a copy of another one, of the same cluster, as it is at the snapshot of its pool's
// view; version is the one that it must have, 0: any.
func (o *WriteOp) CopyFrom(from Object, version uint64) {
	o.add(osdop.CopyFrom(from.target(), from.pool.snap, version))
}

// AllocHint says how large the object and the writes on it will be. An OSD may ignore it.
func (o *WriteOp) AllocHint(size, write uint64) { o.add(osdop.AllocHint(size, write, 0)) }

// Operate carries out a compound operation, and returns the version of the object then. The error is that of the
// first step that failed; each step has its own in its Result.
func (o Object) Operate(ctx context.Context, op Op) (version uint64, err error) {
	s := op.list()
	r := o.compound(op)
	reply, err := o.do(ctx, &r, nil)
	s.conclude(&reply, err)
	return reply.UserVersion, err
}

// Start is Operate for callers that do not wait: done is called once, on a core, which it must not block; it may start others. At the bounds of
// Options Start waits, but on a core. Any goroutine, a core's too.
func (o Object) Start(ctx context.Context, op Op, done func(version uint64, err error)) error {
	s := op.list()
	return o.pool.c.engine.Start(ctx, &engine.Call{Request: o.compound(op), Done: func(c *engine.Call) {
		err := o.explained(c.Err)
		s.conclude(&c.Reply, err)
		done(c.Reply.UserVersion, err)
	}})
}

// compound makes the request.
func (o Object) compound(op Op) osdop.Request {
	s := op.list()
	_, write := op.(*WriteOp)
	r := o.request(s.ops, write)
	if !s.mtime.IsZero() {
		r.MTime = s.mtime
	}
	for i := range r.Ops {
		r.Ops[i].Result, r.Ops[i].Out = 0, nil
	}
	return r
}

// conclude sets the results of the steps, and releases the answer.
func (s *steps) conclude(reply *osdop.Reply, err error) {
	defer reply.Release()
	skipped := err
	if errors.Is(err, ErrRefused) {
		if skipped = nil; !slices.ContainsFunc(s.ops, failed) {
			skipped = ErrSkipped // it was refused as a whole, as where there is no object
		}
	}
	for i, finish := range s.finish {
		op := &s.ops[i]
		finish(op, skipped)
		if skipped == nil && failed(*op) {
			skipped = ErrSkipped
		}
	}
}

// failed says that an operation ended its request.
func failed(op osdop.Op) bool { return op.Result < 0 && op.Flags&osdop.OpFailOK == 0 }

// MismatchError says that CompareExtent found another byte, the first of them here. It wraps ECANCELED.
type MismatchError struct{ At uint64 }

// Error implements error.
func (e *MismatchError) Error() string { return fmt.Sprintf("byte %d differs", e.At) }

// Unwrap returns ECANCELED.
func (e *MismatchError) Unwrap() error { return syscall.ECANCELED }

// reason is the error of a negative result.
func reason(result int32) error {
	if result <= osdop.CompareMismatch {
		return &MismatchError{uint64(osdop.CompareMismatch - int64(result))}
	}
	return syscall.Errno(-result)
}
