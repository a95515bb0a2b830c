package rados

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// common are the steps that reads and writes have.
type common struct{ steps }

// AssertExists has the operation fail with ENOENT if the object does not exist.
func (o *common) AssertExists() { o.add(osdop.Op{Code: osdop.CodeStat}) }

// AssertVersion has the operation fail, unless the object has this version (Object.Operate): with ERANGE if
// the object is newer, EOVERFLOW if it is older.
func (o *common) AssertVersion(v uint64) { o.add(osdop.Extent(osdop.CodeAssertVer, 0, v, nil)) }

// CompareExtent has the operation fail unless the object has these bytes at offset. The error is a
// *MismatchError.
func (o *common) CompareExtent(offset uint64, data []byte) {
	o.add(osdop.Extent(osdop.CodeCmpExt, offset, uint64(len(data)), data))
}

// Comparison says how a stored value has to compare to the one that is given.
type Comparison uint8

// The comparisons. Of omaps there are Equal, Less and Greater.
const (
	Equal          Comparison = 1
	NotEqual       Comparison = 2
	Greater        Comparison = 3
	GreaterOrEqual Comparison = 4
	Less           Comparison = 5
	LessOrEqual    Comparison = 6
)

// CompareXattr has the operation fail with ECANCELED unless an attribute compares to value.
func (o *common) CompareXattr(name string, c Comparison, value []byte) {
	op := osdop.Xattr(osdop.CodeCmpXattr, name, value)
	op.Args[8], op.Args[9] = uint8(c), 1 // of bytes
	o.add(op)
}

// CompareOmap has the operation fail with ECANCELED unless a value of the omap compares to one.
func (o *common) CompareOmap(key string, c Comparison, value []byte) {
	b := wire.AppendBlob(wire.AppendString(le.AppendUint32(nil, 1), key), value)
	o.add(osdop.Input(osdop.CodeOmapCmp, le.AppendUint32(b, uint32(c))))
}

// Exec calls a method of a class of the OSD. In a WriteOp its output comes with ReturnOutputs alone.
func (o *common) Exec(class, method string, in []byte) *Result[[]byte] {
	return addResult(&o.steps, osdop.Call(class, method, in), cloned)
}

// ReadOp is a compound operation that changes nothing. The zero value has no step.
type ReadOp struct{ common }

// Read reads; length 0: to the end.
func (o *ReadOp) Read(offset, length uint64) *Result[[]byte] {
	return addResult(&o.steps, osdop.Extent(osdop.CodeRead, offset, length, nil), cloned)
}

// ReadInto reads into p, until p is full or the object ends; the result is the number of bytes. As the only
// step it brings large data from the socket straight into p, as Object.ReadInto does. p, of at most PieceSize
// bytes, belongs to the operation until that is over.
func (o *ReadOp) ReadInto(offset uint64, p []byte) *Result[int] {
	if len(p) == 0 { // an OSD takes a length of 0 for all of the object
		return addResult(&o.steps, osdop.Op{Code: osdop.CodeStat}, func([]byte) (int, error) { return 0, nil })
	}
	op := osdop.Extent(osdop.CodeRead, offset, uint64(len(p)), nil)
	r := addResult(&o.steps, op, func(out []byte) (int, error) {
		if len(out) > len(p) {
			return 0, fmt.Errorf("%w: %d bytes in answer to a read of %d", ErrMessage, len(out), len(p))
		}
		if len(out) > 0 && &out[0] != &p[0] {
			copy(p, out)
		}
		return len(out), nil
	})
	if len(o.ops) == 1 {
		o.into = p
	}
	return r
}

// Sparse is the result of a sparse read.
type Sparse struct {
	Extents []Extent // that are stored; all between them is zeros
	Data    []byte   // of the extents, one after the other
}

// Extent is a part of an object, in bytes.
type Extent struct{ Offset, Length uint64 }

// SparseRead reads the extents that are stored.
func (o *ReadOp) SparseRead(offset, length uint64) *Result[Sparse] {
	op := osdop.Extent(osdop.CodeSparseRead, offset, length, nil)
	return addResult(&o.steps, op, output("sparse read", func(r *wire.Reader) Sparse {
		s := Sparse{readExtents(r), bytes.Clone(r.Blob())}
		left := uint64(len(s.Data))
		for _, e := range s.Extents {
			if e.Length > left || e.Offset > 1<<63 {
				r.Fail(fmt.Errorf("%w: extent %+v in %d bytes", wire.ErrMalformed, e, left))
				break
			}
			left -= e.Length
		}
		return s
	}))
}

func readExtents(r *wire.Reader) []Extent {
	return wire.ListOf(r, 8+8, func(r *wire.Reader) Extent { return Extent{r.U64(), r.U64()} })
}

// Info is the result of Stat.
type Info struct {
	Size    uint64    `json:"size"` // bytes
	ModTime time.Time `json:"mtime"`
}

// Stat asks for size and time.
func (o *ReadOp) Stat() *Result[Info] {
	return addResult(&o.steps, osdop.Op{Code: osdop.CodeStat}, output("stat", func(r *wire.Reader) Info {
		return Info{r.U64(), r.Utime()}
	}))
}

// ChecksumKind is an algorithm.
type ChecksumKind uint8

// The kinds of checksums. That of XXH64 has 64 bits, the others 32.
const (
	XXH32  ChecksumKind = 0
	XXH64  ChecksumKind = 1
	CRC32C ChecksumKind = 2
)

// Checksum has the OSD compute the checksums of chunks of this many bytes, each begun with seed; chunk 0: one
// for all, or none behind the end.
func (o *ReadOp) Checksum(kind ChecksumKind, seed, offset, length uint64, chunk uint32) *Result[[]uint64] {
	size, read := 4, func(r *wire.Reader) uint64 { return uint64(r.U32()) }
	if kind == XXH64 {
		size, read = 8, (*wire.Reader).U64
	}
	op := osdop.Extent(osdop.CodeChecksum, offset, length, le.AppendUint64(nil, seed)[:size])
	le.PutUint32(op.Args[16:], chunk)
	op.Args[20] = uint8(kind)
	return addResult(&o.steps, op, output("checksum", func(r *wire.Reader) []uint64 {
		if r.Len() == 0 {
			return nil // the range lies behind the end of the object
		}
		return wire.ListOf(r, size, read)
	}))
}

// Xattr asks for an attribute; ENODATA: there is none of this name.
func (o *ReadOp) Xattr(name string) *Result[[]byte] {
	return addResult(&o.steps, osdop.Xattr(osdop.CodeGetXattr, name, nil), cloned)
}

// Xattrs asks for all attributes.
func (o *ReadOp) Xattrs() *Result[map[string][]byte] {
	return addResult(&o.steps, osdop.Op{Code: osdop.CodeGetXattrs}, output("xattrs", readMap))
}

func readMap(r *wire.Reader) map[string][]byte {
	values := map[string][]byte{}
	for _, p := range wire.ListOf(r, 4+4, readPair) {
		values[p.Key] = p.Value
	}
	return values
}

// Pair is a value of an omap. The Value is the caller's.
type Pair struct {
	Key   string
	Value []byte
}

// Page is a part of an omap, in the order of its keys.
type Page struct {
	Pairs []Pair
	More  bool // it was cut: ask again, behind the last key
}

// Omap asks for at most limit values of the omap, behind a key, whose keys begin with prefix. OSDs bring at
// most 1024.
func (o *ReadOp) Omap(after, prefix string, limit uint64) *Result[Page] {
	in := wire.AppendString(le.AppendUint64(wire.AppendString(nil, after), limit), prefix)
	return addResult(&o.steps, osdop.Input(osdop.CodeOmapVals, in), output("omap", func(r *wire.Reader) Page {
		return Page{wire.ListOf(r, 4+4, readPair), r.Bool()}
	}))
}

func readPair(r *wire.Reader) Pair { return Pair{r.Str(), bytes.Clone(r.Blob())} }

// OmapKeys is Omap without values and prefix.
func (o *ReadOp) OmapKeys(after string, limit uint64) *Result[Page] {
	in := le.AppendUint64(wire.AppendString(nil, after), limit)
	return addResult(&o.steps, osdop.Input(osdop.CodeOmapKeys, in), output("omap keys", func(r *wire.Reader) Page {
		return Page{wire.ListOf(r, 4, func(r *wire.Reader) Pair { return Pair{Key: r.Str()} }), r.Bool()}
	}))
}

// OmapByKeys asks for the values of those keys that there are.
func (o *ReadOp) OmapByKeys(keys ...string) *Result[map[string][]byte] {
	return addResult(&o.steps, osdop.Input(osdop.CodeOmapByKeys, appendStrings(nil, keys)), output("omap", readMap))
}

func appendStrings(dst []byte, list []string) []byte {
	dst = le.AppendUint32(dst, uint32(len(list)))
	for _, s := range list {
		dst = wire.AppendString(dst, s)
	}
	return dst
}

// OmapHeader asks for the header of the omap.
func (o *ReadOp) OmapHeader() *Result[[]byte] {
	return addResult(&o.steps, osdop.Op{Code: osdop.CodeOmapHeader}, cloned)
}

// Watcher is a client that watches an object.
type Watcher struct {
	Client  wire.EntityType
	ID      int64         // its global id
	Cookie  uint64        // of the watch, among those of the client
	Timeout time.Duration // after which the OSD forgets a client of which it has not heard
	Addr    wire.Addr
}

// Watchers asks for the watchers of the object.
func (o *ReadOp) Watchers() *Result[[]Watcher] {
	return addResult(&o.steps, osdop.Op{Code: osdop.CodeWatchers}, output("watchers", func(r *wire.Reader) []Watcher {
		return enveloped(r, 6, func(r *wire.Reader) (w Watcher) {
			r.Envelope(2, func(_ uint8, r *wire.Reader) {
				w = Watcher{Client: wire.EntityType(r.U8()), ID: r.S64(), Cookie: r.U64()}
				w.Timeout, w.Addr = time.Duration(r.U32())*time.Second, r.Addr()
			})
			return w
		})
	}))
}

// Clone is a state of an object that snapshots keep.
type Clone struct {
	ID      uint64   // 1<<64 - 2 for the present object
	Snaps   []uint64 // that have this state
	Overlap []Extent // in which the next state is the same
	Size    uint64   // bytes
}

// clones are all states of an object, and the newest of the snapshots.
type clones struct {
	list   []Clone
	newest uint64
}

// clones asks for them. The operation reads SnapDir.
func (o *ReadOp) clones() *Result[clones] {
	op := osdop.Op{Code: osdop.CodeListSnaps}
	return addResult(&o.steps, op, output("snapshots", func(r *wire.Reader) (all clones) {
		r.Envelope(2, func(version uint8, r *wire.Reader) {
			all.list = wire.ListOf(r, 6, func(r *wire.Reader) (c Clone) {
				r.Envelope(1, func(_ uint8, r *wire.Reader) {
					c = Clone{r.U64(), wire.ListOf(r, 8, (*wire.Reader).U64), readExtents(r), r.U64()}
				})
				return c
			})
			if version >= 2 {
				all.newest = r.U64()
			}
		})
		return all
	}))
}
