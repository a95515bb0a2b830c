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
// from 0 (Ceph's msgr.h). [SegmentCRC] makes them.
type Sums struct{ Front, Middle, Data uint32 }

// SegmentCRC continues the running crc of a segment with p. It begins with 0.
func SegmentCRC(crc uint32, p []byte) uint32 { return frame.SegmentCRC(crc, p) }

// SumsOf are the crcs of three whole segments.
func SumsOf(front, middle, data []byte) Sums {
	return Sums{Front: SegmentCRC(0, front), Middle: SegmentCRC(0, middle), Data: SegmentCRC(0, data)}
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
