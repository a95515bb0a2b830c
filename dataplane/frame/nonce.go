package frame

import (
	"encoding/binary"
	"math"
)

// nonce is the nonce of one direction. It advances after every AEAD operation
// and never comes back to the value it started with (Ceph's crypto_onwire.cc).
// The start is random, so the counter wraps in normal operation.
type nonce struct {
	b    [12]byte
	wide bool   // revision 1: 64-bit counter in bytes 4..11, else 32 bits in 0..3
	init uint64 // counter of the first operation
	used bool   // at least one operation was done
}

func newNonce(b [12]byte, rev Revision) nonce {
	n := nonce{b: b, wide: rev != Rev0}
	n.init = n.counter()
	return n
}

func (n *nonce) counter() uint64 {
	if n.wide {
		return binary.LittleEndian.Uint64(n.b[4:])
	}
	return uint64(binary.LittleEndian.Uint32(n.b[:]))
}

// left is the number of operations before the initial nonce would come again.
func (n *nonce) left() uint64 {
	diff := n.init - n.counter()
	switch {
	case !n.used && n.wide:
		return math.MaxUint64 // one less than there are
	case !n.used:
		return 1 << 32
	case n.wide:
		return diff
	}
	return diff & math.MaxUint32
}

func (n *nonce) advance() {
	n.used = true
	if n.wide {
		binary.LittleEndian.PutUint64(n.b[4:], n.counter()+1)
	} else {
		binary.LittleEndian.PutUint32(n.b[:], uint32(n.counter())+1)
	}
}
