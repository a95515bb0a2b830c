package wire

import (
	"fmt"
	"slices"
)

// AddrVec lists all addresses of one process, the preferred one first (Ceph's msg_types.h).
type AddrVec []Addr

// Front returns the first address, or the blank one.
func (v AddrVec) Front() Addr {
	if len(v) == 0 {
		return Addr{}
	}
	return v[0]
}

// V2 returns the first address of type [AddrMsgr2], or the blank one.
func (v AddrVec) V2() Addr { return v.first(AddrMsgr2) }

// V1 returns the first address of type [AddrLegacy], or the blank one.
func (v AddrVec) V1() Addr { return v.first(AddrLegacy) }

func (v AddrVec) first(t AddrType) Addr {
	for _, a := range v {
		if a.Type == t {
			return a
		}
	}
	return Addr{}
}

// Contains reports whether some element equals a in every field.
func (v AddrVec) Contains(a Addr) bool { return slices.ContainsFunc(v, a.Equal) }

// Equal reports whether both have equal addresses in the same order.
func (v AddrVec) Equal(w AddrVec) bool { return slices.EqualFunc(v, w, Addr.Equal) }

// AppendTo appends the vector, each address in the versioned form.
func (v AddrVec) AppendTo(dst []byte) []byte {
	dst = le.AppendUint32(append(dst, addrVecMarker), uint32(len(v)))
	for _, a := range v {
		dst = a.AppendTo(dst)
	}
	return dst
}

// AddrVec reads a vector of addresses, or a single address in either form, which makes
// a vector of one element.
func (r *Reader) AddrVec() AddrVec {
	marker := r.U8()
	if r.err != nil {
		return nil
	}
	var v AddrVec
	switch marker {
	case addrVecMarker:
		n := r.Count(addrMinSize)
		if n > 0 && r.err == nil {
			v = make(AddrVec, 0, n)
		}
		for range n {
			v = append(v, r.Addr())
			if r.err != nil {
				break
			}
		}
	case addrMarkerLegacy, addrMarkerVersioned:
		v = AddrVec{r.addrBody(marker)}
	default:
		r.Fail(fmt.Errorf("%w: address vector marker %d", ErrMalformed, marker))
	}
	if r.err != nil {
		return nil
	}
	return v
}
