package frame

import (
	"encoding/binary"
	"fmt"
)

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
