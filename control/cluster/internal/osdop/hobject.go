package osdop

import (
	"cmp"
	"math"
	"math/bits"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// HObject is a position in the order in which OSDs keep objects. The head of a list is Min, its end has Max
// set.
type HObject struct {
	Key, Name string // Key: the locator; empty: it is the name
	Snap      uint64
	Hash      uint32 // of the name
	Max       bool
	Namespace string
	Pool      int64
}

// Min is before all objects.
func Min() HObject { return HObject{Pool: math.MinInt64} }

// AppendTo appends the encoding.
func (h *HObject) AppendTo(b []byte) []byte {
	b, mark := wire.BeginEnvelope(b, 4, 3)
	b = wire.AppendString(b, h.Key)
	b = wire.AppendString(b, h.Name)
	b = le.AppendUint64(b, h.Snap)
	b = le.AppendUint32(b, h.Hash)
	b = wire.AppendBool(b, h.Max)
	b = wire.AppendString(b, h.Namespace)
	b = le.AppendUint64(b, uint64(h.Pool))
	return wire.EndEnvelope(b, mark)
}

// ReadHObject reads what AppendTo appends.
func ReadHObject(r *wire.Reader) (h HObject) {
	r.Envelope(4, func(_ uint8, r *wire.Reader) {
		h = HObject{Key: r.Str(), Name: r.Str(), Snap: r.U64(), Hash: r.U32(), Max: r.Bool()}
		h.Namespace, h.Pool = r.Str(), r.S64()
	})
	return h
}

// Compare is negative if h comes before g, 0 if they are the same position.
func (h *HObject) Compare(g *HObject) int {
	switch {
	case h.Max && g.Max:
		return 0
	case h.Max:
		return 1
	case g.Max:
		return -1
	}
	if c := cmp.Or(cmp.Compare(h.Pool, g.Pool), cmp.Compare(bits.Reverse32(h.Hash), bits.Reverse32(g.Hash)),
		strings.Compare(h.Namespace, g.Namespace)); c != 0 {
		return c
	}
	if h.Key != "" || g.Key != "" {
		if c := strings.Compare(cmp.Or(h.Key, h.Name), cmp.Or(g.Key, g.Name)); c != 0 {
			return c
		}
	}
	return cmp.Or(strings.Compare(h.Name, g.Name), cmp.Compare(h.Snap, g.Snap))
}

// HObject is the position of an object's head in its pool.
func (o *Object) HObject(hash uint32) HObject {
	h := HObject{Key: o.Locator, Name: o.Name, Snap: Head, Hash: hash, Namespace: o.Namespace, Pool: o.Pool}
	if h.Key == h.Name {
		h.Key = ""
	}
	return h
}
