package frame

import (
	"hash/crc32"
	"math"
)

// Sizes of the parts around the segments (Ceph's frames_v2.h and crypto_onwire.cc).
const (
	crcSize        = 4
	epilogueRev0   = 1 + 4*crcSize // late_flags, crcs of segments 0..3
	epilogueRev1   = 1 + 3*crcSize // late_status, crcs of segments 1..3
	blockSize      = 16            // padding of secure mode, and its epilogue
	tagSize        = 16            // of AES-GCM
	inlineSize     = 48            // bytes of segment 0 beside the preamble
	headSizeSecure = PreambleSize + inlineSize + tagSize
)

// layout says where the parts of a frame stand on the wire. All arithmetic is
// on uint64: four lengths of 32 bits and some cannot wrap it.
type layout struct {
	rev    Revision
	secure bool
}

func pad(n uint64) uint64 { return (n + blockSize - 1) &^ (blockSize - 1) }

// headSize is the number of bytes that can be read before the lengths are known.
func (l layout) headSize() int {
	if l.secure && l.rev != Rev0 {
		return headSizeSecure
	}
	return PreambleSize
}

// restSize is the size of the frame without its head.
func (l layout) restSize(h *Header) uint64 {
	before, after := l.split(h)
	return before + uint64(h.Len[3]) + after
}

// split gives the number of bytes between the head and segment 3, and from the end
// of segment 3 to the end of the frame.
func (l layout) split(h *Header) (before, after uint64) {
	l0, l1, l2, l3 := uint64(h.Len[0]), uint64(h.Len[1]), uint64(h.Len[2]), uint64(h.Len[3])
	switch {
	case l.rev == Rev0 && !l.secure:
		return l0 + l1 + l2, epilogueRev0
	case l.rev == Rev0:
		return pad(l0) + pad(l1) + pad(l2), pad(l3) - l3 + blockSize + tagSize
	case !l.secure:
		before = l0 + l1 + l2
		if l0 > 0 {
			before += crcSize
		}
		if h.Num > 1 {
			after = epilogueRev1
		}
		return before, after
	default:
		before = l.inlineRest(h) + pad(l1) + pad(l2)
		if h.Num > 1 {
			after = pad(l3) - l3 + blockSize + tagSize
		}
		return before, after
	}
}

// firstInEpilogue is the first segment whose crc is in the epilogue.
func (l layout) firstInEpilogue() int {
	if l.rev == Rev0 {
		return 0
	}
	return 1
}

// inlineRest is the size on the wire of the part of segment 0 beyond the inline
// block: operation B of revision 1.
func (l layout) inlineRest(h *Header) uint64 {
	if h.Len[0] <= inlineSize {
		return 0
	}
	return pad(uint64(h.Len[0])-inlineSize) + tagSize
}

// operations is the number of AEAD operations in a frame of secure mode.
func (l layout) operations(h *Header) uint64 {
	n := uint64(1)
	if l.rev != Rev0 {
		if h.Len[0] > inlineSize {
			n++
		}
		if h.Num > 1 {
			n++
		}
	}
	return n
}

// frameSize is the size of the whole frame; false if it does not fit an int.
func (l layout) frameSize(h *Header) (int, bool) {
	n := uint64(l.headSize()) + l.restSize(h)
	return int(n), n <= math.MaxInt
}

// late_status of revision 1 counts in its low nibble, late_flags of revision 0
// in bit 0 (Ceph's frames_v2.h).
const (
	lateComplete    = 0x0E
	lateAborted     = 0x01
	lateMask        = 0x0F
	lateFlagAborted = 0x01
)

// lateByte is the late status of a sender that never gives a frame up.
func lateByte(rev Revision) byte {
	if rev == Rev0 {
		return 0
	}
	return lateComplete
}

// parseLate reads the byte.
func parseLate(rev Revision, b byte) (aborted bool, err error) {
	if rev == Rev0 {
		return b&lateFlagAborted != 0, nil
	}
	switch b & lateMask {
	case lateComplete:
		return false, nil
	case lateAborted:
		return true, nil
	}
	return false, errLateStatus
}

// SegmentCRCInit is the crc of an empty segment, and the value to start
// SegmentCRC with.
const SegmentCRCInit uint32 = 0xFFFFFFFF

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SegmentCRC continues the running crc of a segment with p and returns the new
// value, ready to go on the wire (Ceph's frames_v2.h: CRC-32C as a plain
// shift register, no final inversion).
func SegmentCRC(crc uint32, p []byte) uint32 {
	// The library inverts on entry and on exit; the wire does neither.
	return ^crc32.Update(^crc, castagnoli, p)
}

// preambleCRC is the crc of a preamble: the same register, started with 0.
func preambleCRC(p []byte) uint32 { return SegmentCRC(0, p) }

// CRCs are the known crcs of the segments of one frame, made by SegmentCRC from
// SegmentCRCInit on. They are the same in both revisions, so that a received segment
// can be sent in another frame with its crc.
type CRCs struct {
	Of    [MaxSegments]uint32
	Known [MaxSegments]bool
}

// Set notes the crc of segment i.
func (c *CRCs) Set(i int, crc uint32) { c.Of[i], c.Known[i] = crc, true }
