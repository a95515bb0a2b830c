package frame

import (
	"encoding/binary"
	"fmt"
)

const (
	// MaxSegments is the largest number of segments in a frame.
	MaxSegments = 4
	// PreambleSize is the length of the preamble in bytes.
	PreambleSize = 32
	// FlagCompressed in Header.Flags: the segments are compressed.
	FlagCompressed uint8 = 1 << 0
)

const preambleCRCOffset = PreambleSize - 4

// alignments are the receive-buffer hints that every known peer sends. Those of a peer are ignored: they must not
// drive an allocation.
var alignments = [MaxSegments]uint16{8, 8, 8, 4096}

// Header is a decoded preamble (Ceph's frames_v2.h).
type Header struct {
	Tag Tag
	// Num is the number of segments, 1 to 4.
	Num int
	// Len are the lengths of the segments in bytes, without padding,
	// compressed if the frame is. 0 from Num on.
	Len [MaxSegments]uint32
	// Flags as received: undefined bits are kept, and to be ignored.
	Flags uint8
}

// Compressed tells whether the segments are compressed on the wire.
func (h *Header) Compressed() bool { return h.Flags&FlagCompressed != 0 }

// putPreamble writes the 32 bytes of h's preamble, crc included, to dst. What h
// says beyond Num is written as zero.
func putPreamble(dst *[PreambleSize]byte, h *Header) {
	clear(dst[:])
	dst[0] = byte(h.Tag)
	dst[1] = byte(h.Num)
	for i := range min(max(h.Num, 0), MaxSegments) {
		at := 2 + 6*i
		binary.LittleEndian.PutUint32(dst[at:], h.Len[i])
		binary.LittleEndian.PutUint16(dst[at+4:], alignments[i])
	}
	dst[26] = h.Flags
	binary.LittleEndian.PutUint32(dst[preambleCRCOffset:], preambleCRC(dst[:preambleCRCOffset]))
}

// ParsePreamble decodes the first PreambleSize bytes of p in clear, and checks
// the crc, then the number of segments, then that the last of several segments
// is not empty. Limits and flags are the Decoder's to check.
//
// Errors: ErrTruncated, ErrPreambleCRC, errSegmentCount.
func ParsePreamble(p []byte) (Header, error) {
	var h Header
	if len(p) < PreambleSize {
		return h, fmt.Errorf("%w: preamble of %d", ErrTruncated, len(p))
	}
	want := binary.LittleEndian.Uint32(p[preambleCRCOffset:])
	if got := preambleCRC(p[:preambleCRCOffset]); got != want {
		return h, fmt.Errorf("%w: %#08x, sent %#08x", ErrPreambleCRC, got, want)
	}
	num := int(p[1])
	if num < 1 || num > MaxSegments {
		return h, fmt.Errorf("%w: %d", errSegmentCount, num)
	}
	h = Header{Tag: Tag(p[0]), Num: num, Flags: p[26]}
	for i := range num {
		h.Len[i] = binary.LittleEndian.Uint32(p[2+6*i:])
	}
	if num > 1 && h.Len[num-1] == 0 {
		return Header{}, fmt.Errorf("%w: the last of %d is empty", errSegmentCount, num)
	}
	return h, nil
}

// Frame is a decoded frame.
type Frame struct {
	Header
	// Seg are the payloads, nil if empty or absent. They lie in the buffers
	// that were handed to Finish.
	Seg [MaxSegments][]byte
	// CRCs are the checked crcs of Seg: of segments that are not empty, in crc mode,
	// unless the check was switched off. The segments of a compressed frame have no
	// crcs.
	CRCs CRCs
	// Aborted: the sender gave up in the middle. The frame must be dropped as
	// if it had never been sent: no dispatch, no sequence number consumed.
	// Seg is all nil (Ceph's frames_v2.h).
	Aborted bool
}

// MessageHeaderSize is the length in bytes of segment 0 of a MESSAGE frame.
const MessageHeaderSize = 41

// MessageHeader is segment 0 of a MESSAGE frame (Ceph's frames_v2.h).
type MessageHeader struct {
	Seq           uint64 // 1, 2, 3, ... per session and direction
	TID           uint64 // application's transaction id
	Type          uint16 // message type
	Priority      uint16
	Version       uint16 // encoding version of the payload
	DataOff       uint16 // offset of the data within a page: a hint for the receiver
	AckSeq        uint64 // acknowledges all messages up to this one
	Flags         uint8  // as in the footer of messenger v1; not to be interpreted
	CompatVersion uint16 // oldest decoder version that works, 0: unknown
}

// Put writes h to dst. The two reserved bytes are zero.
func (h MessageHeader) Put(dst *[MessageHeaderSize]byte) { h.put(dst) }

func (h *MessageHeader) put(dst *[MessageHeaderSize]byte) {
	le := binary.LittleEndian
	le.PutUint64(dst[0:], h.Seq)
	le.PutUint64(dst[8:], h.TID)
	le.PutUint16(dst[16:], h.Type)
	le.PutUint16(dst[18:], h.Priority)
	le.PutUint16(dst[20:], h.Version)
	le.PutUint32(dst[22:], 0) // padding before the data: no sender has any
	le.PutUint16(dst[26:], h.DataOff)
	le.PutUint64(dst[28:], h.AckSeq)
	dst[36] = h.Flags
	le.PutUint16(dst[37:], h.CompatVersion)
	le.PutUint16(dst[39:], 0)
}

// ParseMessageHeader decodes segment 0 of a MESSAGE frame. Bytes behind the
// header are tolerated, the reserved ones ignored. Error: ErrTruncated.
func ParseMessageHeader(p []byte) (MessageHeader, error) {
	if len(p) < MessageHeaderSize {
		return MessageHeader{}, fmt.Errorf("%w: message header of %d", ErrTruncated, len(p))
	}
	le := binary.LittleEndian
	return MessageHeader{
		Seq:           le.Uint64(p[0:]),
		TID:           le.Uint64(p[8:]),
		Type:          le.Uint16(p[16:]),
		Priority:      le.Uint16(p[18:]),
		Version:       le.Uint16(p[20:]),
		DataOff:       le.Uint16(p[26:]),
		AckSeq:        le.Uint64(p[28:]),
		Flags:         p[36],
		CompatVersion: le.Uint16(p[37:]),
	}, nil
}
