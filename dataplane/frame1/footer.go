package frame1

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Flags of a footer.
const (
	flagComplete  = 1 << 0 // else the sender has given the message up
	flagNoDataCRC = 1 << 1
	flagSigned    = 1 << 2
)

// Sums are the crcs of the three segments of a message: CRC-32C without inversion,
// from 0 (Ceph's msgr.h). [frame.SegmentCRC] makes them.
type Sums struct{ Front, Middle, Data uint32 }

// SumsOf are the crcs of three whole segments.
func SumsOf(front, middle, data []byte) Sums {
	return Sums{Front: frame.SegmentCRC(0, front), Middle: frame.SegmentCRC(0, middle), Data: frame.SegmentCRC(0, data)}
}

// Signed are the numbers that the signature of a message covers (Ceph's msgr.h): the crcs as
// transmitted, and for the second form the lengths and the seq.
type Signed struct {
	HeaderCRC, FrontCRC, MiddleCRC, DataCRC uint32
	FrontLen, MiddleLen, DataLen            uint32 // bytes
	Seq                                     uint64 // the low 32 bits count
}

// Signer computes signatures. One for each direction, as it has no lock.
type Signer interface {
	// Sign must not allocate.
	Sign(Signed) uint64
}

// footer is the end of a message, in either form.
type footer struct {
	Sums
	signature uint64 // 0 in the old form
	flags     uint8
}

func (t footer) appendTo(dst []byte, f Form) []byte {
	dst = le.AppendUint32(dst, t.Front)
	dst = le.AppendUint32(dst, t.Middle)
	dst = le.AppendUint32(dst, t.Data)
	if !f.OldFooter {
		dst = le.AppendUint64(dst, t.signature)
	}
	return append(dst, t.flags)
}

func parseFooter(p []byte, f Form) (footer, error) {
	if len(p) != f.FooterSize() {
		return footer{}, fmt.Errorf("%w: message footer of %d", frame.ErrTruncated, len(p))
	}
	t := footer{
		Sums:  Sums{Front: le.Uint32(p), Middle: le.Uint32(p[4:]), Data: le.Uint32(p[8:])},
		flags: p[len(p)-1],
	}
	if !f.OldFooter {
		t.signature = le.Uint64(p[12:])
	}
	return t, nil
}

// signed are the numbers that the signature of a message covers.
func (t *footer) signed(h *Header) Signed {
	return Signed{
		HeaderCRC: h.CRC, FrontCRC: t.Front, MiddleCRC: t.Middle, DataCRC: t.Data,
		FrontLen: h.FrontLen, MiddleLen: h.MiddleLen, DataLen: h.DataLen, Seq: h.Seq,
	}
}

// polynomial is that of CRC-32C, reflected: bit 31 is x^0.
const polynomial = 0x82f63b78

// powers are x^8, x^16, x^32 and so on, modulo the polynomial: what 1, 2, 4, ... zero
// bytes multiply a crc by.
var powers = func() (p [32]uint32) {
	p[0] = 1 << (31 - 8)
	for i := 1; i < len(p); i++ {
		p[i] = multiply(p[i-1], p[i-1])
	}
	return p
}()

// Reseed converts the crc of n bytes between the protocols: from one that msgr2 has,
// which begins with -1, to that of msgr1, or back. The two differ by what n zero bytes
// make of the difference of the seeds, so that both ways are the same.
func Reseed(crc, n uint32) uint32 {
	diff := ^uint32(0)
	for i := 0; n > 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			diff = multiply(diff, powers[i])
		}
	}
	return crc ^ diff
}

// multiply is the product of two polynomials modulo that of the crc.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ polynomial&-(b&1)
	}
	return product
}
