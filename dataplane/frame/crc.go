package frame

import "hash/crc32"

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
