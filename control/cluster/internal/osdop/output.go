package osdop

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// decode reads the output of the operation that errors call what.
func decode(what string, out []byte, body func(r *wire.Reader)) error {
	r := wire.NewReader(out)
	body(r)
	if err := r.Err(); err != nil {
		return fmt.Errorf("output of %s: %w", what, err)
	}
	return nil
}

// StatOutput decodes the output of Stat.
func StatOutput(out []byte) (size uint64, mtime time.Time, err error) {
	err = decode("stat", out, func(r *wire.Reader) { size, mtime = r.U64(), r.Utime() })
	return size, mtime, err
}

// Extent is a part of an object.
type Extent struct{ Offset, Length uint64 }

// SparseOutput decodes the output of SparseRead: the extents that are stored, and their bytes one after the other, which alias out.
func SparseOutput(out []byte) (extents []Extent, data []byte, err error) {
	err = decode("sparse read", out, func(r *wire.Reader) {
		extents, data = readExtents(r), r.Blob()
		left := uint64(len(data))
		for _, e := range extents {
			if e.Length > left || e.Offset > 1<<63 {
				r.Fail(fmt.Errorf("%w: extent %+v in %d bytes", wire.ErrMalformed, e, left))
				return
			}
			left -= e.Length
		}
	})
	return extents, data, err
}

func readExtents(r *wire.Reader) []Extent {
	list := make([]Extent, r.Count(8+8))
	for i := range list {
		list[i] = Extent{r.U64(), r.U64()}
	}
	return list
}

// ChecksumOutput decodes the output of Checksum; empty, where the range lies behind the end of the object.
func ChecksumOutput(kind uint8, out []byte) (sums []uint64, err error) {
	if len(out) == 0 {
		return nil, nil
	}
	err = decode("checksum", out, func(r *wire.Reader) {
		sums = make([]uint64, r.Count(checksumSize(kind)))
		for i := range sums {
			if kind == XXH64 {
				sums[i] = r.U64()
			} else {
				sums[i] = uint64(r.U32())
			}
		}
	})
	return sums, err
}

// MapOutput decodes the output of GetXattrs and OmapByKeys. It keeps none of out.
func MapOutput(out []byte) (values map[string][]byte, err error) {
	err = decode("map", out, func(r *wire.Reader) {
		n := r.Count(4 + 4)
		values = make(map[string][]byte, n)
		for range n {
			key := r.Str()
			values[key] = bytes.Clone(r.Blob())
		}
	})
	return values, err
}

// Pair is one value of an omap.
type Pair struct {
	Key   string
	Value []byte
}

// OmapOutput decodes the output of OmapVals, in the order of keys. more: it was cut. It keeps none of out.
func OmapOutput(out []byte) (pairs []Pair, more bool, err error) {
	err = decode("omap values", out, func(r *wire.Reader) {
		pairs = make([]Pair, r.Count(4+4))
		for i := range pairs {
			pairs[i] = Pair{r.Str(), bytes.Clone(r.Blob())}
		}
		more = r.Bool()
	})
	return pairs, more, err
}

// KeysOutput decodes the output of OmapKeys.
func KeysOutput(out []byte) (keys []string, more bool, err error) {
	err = decode("omap keys", out, func(r *wire.Reader) {
		keys = make([]string, r.Count(4))
		for i := range keys {
			keys[i] = r.Str()
		}
		more = r.Bool()
	})
	return keys, more, err
}

// NotifyOutput is the id of a notify, which EventComplete has.
func NotifyOutput(out []byte) (id uint64, err error) {
	err = decode("notify", out, func(r *wire.Reader) { id = r.U64() })
	return id, err
}

// Watcher is a client that watches an object.
type Watcher struct {
	Client  wire.EntityType
	ID      int64 // its global id
	Cookie  uint64
	Timeout time.Duration
	Addr    wire.Addr
}

// WatchersOutput decodes the output of Watchers.
func WatchersOutput(out []byte) (list []Watcher, err error) {
	err = decode("watchers", out, func(r *wire.Reader) {
		r.Envelope(1, func(_ uint8, r *wire.Reader) {
			for range r.Count(6) {
				r.Envelope(2, func(_ uint8, r *wire.Reader) {
					w := Watcher{Client: wire.EntityType(r.U8()), ID: r.S64(), Cookie: r.U64()}
					w.Timeout, w.Addr = time.Duration(r.U32())*time.Second, r.Addr()
					list = append(list, w)
				})
			}
		})
	})
	return list, err
}

// Clone is a state of an object that snapshots keep. ID is Head for the present one.
type Clone struct {
	ID      uint64
	Snaps   []uint64
	Overlap []Extent // with the next one
	Size    uint64
}

// SnapsOutput decodes the output of ListSnaps: the clones, and the newest snapshot of them.
func SnapsOutput(out []byte) (clones []Clone, seq uint64, err error) {
	err = decode("snapshots", out, func(r *wire.Reader) {
		r.Envelope(2, func(version uint8, r *wire.Reader) {
			for range r.Count(6) {
				r.Envelope(1, func(_ uint8, r *wire.Reader) {
					c := Clone{ID: r.U64(), Snaps: make([]uint64, r.Count(8))}
					for i := range c.Snaps {
						c.Snaps[i] = r.U64()
					}
					c.Overlap, c.Size = readExtents(r), r.U64()
					clones = append(clones, c)
				})
			}
			if version >= 2 {
				seq = r.U64()
			}
		})
	})
	return clones, seq, err
}

// Entry is one object of a list.
type Entry struct{ Namespace, Name, Locator string }

// ListOutput decodes the output of List: objects, and the position of the next page.
func ListOutput(out []byte) (entries []Entry, next HObject, err error) {
	err = decode("list", out, func(r *wire.Reader) {
		r.Envelope(1, func(_ uint8, r *wire.Reader) {
			next = readHObject(r)
			entries = make([]Entry, r.Count(3*4))
			for i := range entries {
				entries[i] = Entry{r.Str(), r.Str(), r.Str()}
			}
		})
	})
	return entries, next, err
}
