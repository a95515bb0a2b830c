package frame1

import (
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Sizes of headers and footers, in bytes (Ceph's msgr.h).
const (
	NewHeaderSize = 53
	OldHeaderSize = 334
	NewFooterSize = 21
	oldFooterSize = 13

	headerCommon = 36  // the bytes at the start that both headers share
	addrSize     = 136 // a legacy address
)

// Form is what the features of both sides make of a connection. The zero value is
// that of all releases since Jewel.
type Form struct {
	OldHeader    bool // a side lacks NOSRCADDR
	OldFooter    bool // a side lacks MSG_AUTH: there are no signatures
	OldKeepalive bool // a side lacks MSGR_KEEPALIVE2
}

// HeaderSize is the size of a message header without its tag.
func (f Form) HeaderSize() int {
	if f.OldHeader {
		return OldHeaderSize
	}
	return NewHeaderSize
}

// FooterSize is the size of a message footer.
func (f Form) FooterSize() int {
	if f.OldFooter {
		return oldFooterSize
	}
	return NewFooterSize
}

// Header is the header of a message (Ceph's msgr.h).
type Header struct {
	Seq           uint64 // 1, 2, 3, ... per session and direction
	TID           uint64 // application's transaction id
	Type          uint16 // message type
	Priority      uint16
	Version       uint16 // encoding version of the payload
	FrontLen      uint32 // bytes
	MiddleLen     uint32
	DataLen       uint32
	DataOff       uint16 // offset of the data within a page: a hint for the receiver
	SrcType       uint8  // entity type of the sender
	SrcNum        int64  // its number, -1 while it has none
	CompatVersion uint16 // oldest decoder version that works, 0: unknown; the old header has none
	CRC           uint32 // as transmitted; signatures cover it
}

// PayloadSize is the sum of the three lengths, in bytes.
func (h *Header) PayloadSize() uint64 {
	return uint64(h.FrontLen) + uint64(h.MiddleLen) + uint64(h.DataLen)
}

// appendTo appends the header without its crc. peer is the legacy address of the peer, for the old header.
func (h *Header) appendTo(dst []byte, f Form, peer *[addrSize]byte) []byte {
	dst = le.AppendUint64(dst, h.Seq)
	dst = le.AppendUint64(dst, h.TID)
	dst = le.AppendUint16(dst, h.Type)
	dst = le.AppendUint16(dst, h.Priority)
	dst = le.AppendUint16(dst, h.Version)
	dst = le.AppendUint32(dst, h.FrontLen)
	dst = le.AppendUint32(dst, h.MiddleLen)
	dst = le.AppendUint32(dst, h.DataLen)
	dst = le.AppendUint16(dst, h.DataOff)
	if f.OldHeader {
		for range 2 { // the source, and the original source
			dst = le.AppendUint64(append(dst, h.SrcType), uint64(h.SrcNum))
			dst = append(dst, peer[:]...)
		}
		return le.AppendUint32(dst, 0)
	}
	dst = le.AppendUint64(append(dst, h.SrcType), uint64(h.SrcNum))
	dst = le.AppendUint16(dst, h.CompatVersion)
	return le.AppendUint16(dst, 0)
}

// parseHeader decodes a header. The reserved bytes are ignored.
func parseHeader(p []byte, f Form) (Header, error) {
	if len(p) != f.HeaderSize() {
		return Header{}, fmt.Errorf("%w: message header of %d", frame.ErrTruncated, len(p))
	}
	h := Header{
		Seq:       le.Uint64(p[0:]),
		TID:       le.Uint64(p[8:]),
		Type:      le.Uint16(p[16:]),
		Priority:  le.Uint16(p[18:]),
		Version:   le.Uint16(p[20:]),
		FrontLen:  le.Uint32(p[22:]),
		MiddleLen: le.Uint32(p[26:]),
		DataLen:   le.Uint32(p[30:]),
		DataOff:   le.Uint16(p[34:]),
		SrcType:   p[headerCommon],
		SrcNum:    int64(le.Uint64(p[headerCommon+1:])),
		CRC:       le.Uint32(p[len(p)-4:]),
	}
	if !f.OldHeader {
		h.CompatVersion = le.Uint16(p[45:])
	}
	return h, nil
}

var le = binary.LittleEndian

// Tag is the byte that everything on an open connection begins with (Ceph's msgr.h and
// ProtocolV1.cc).
type Tag uint8

// The tags of the open phase. The tags of the handshake are in package wire1.
const (
	TagClose         Tag = 6  // the sender closes the connection
	TagMessage       Tag = 7  // a message
	TagAck           Tag = 8  // u64: every message up to this one has arrived
	TagKeepalive     Tag = 9  // nothing; daemons since Pacific stop reading behind it
	TagKeepalive2    Tag = 14 // a time
	TagKeepalive2Ack Tag = 15 // the time of a KEEPALIVE2, unchanged
)

var tagNames = map[Tag]string{
	TagClose: "CLOSE", TagMessage: "MSG", TagAck: "ACK", TagKeepalive: "KEEPALIVE", TagKeepalive2: "KEEPALIVE2",
	TagKeepalive2Ack: "KEEPALIVE2_ACK",
}

// String is the name in the protocol text.
func (t Tag) String() string {
	if name, ok := tagNames[t]; ok {
		return name
	}
	return fmt.Sprintf("tag(%d)", uint8(t))
}

// controlSize is the size of an ack, and of a keepalive with a time, without the tag.
const controlSize = 8

// Size is the number of bytes that follow the tag: of a message, the header alone.
// Error: [frame.ErrTag] for a tag that the protocol does not have.
func (f Form) Size(t Tag) (int, error) {
	switch t {
	case TagMessage:
		return f.HeaderSize(), nil
	case TagAck, TagKeepalive2, TagKeepalive2Ack:
		return controlSize, nil
	case TagKeepalive, TagClose:
		return 0, nil
	}
	return 0, fmt.Errorf("%w: %v", frame.ErrTag, t)
}

// AppendAck appends an ack for every message up to seq.
func AppendAck(dst []byte, seq uint64) []byte { return le.AppendUint64(append(dst, byte(TagAck)), seq) }

// ParseAck reads the bytes after the tag of an ack. Error: [frame.ErrTruncated].
func ParseAck(p []byte) (seq uint64, err error) {
	if len(p) != controlSize {
		return 0, fmt.Errorf("%w: ACK of %d", frame.ErrTruncated, len(p))
	}
	return le.Uint64(p), nil
}

// AppendKeepalive appends a KEEPALIVE2 with a time, in the 8 bytes of package wire,
// or without one, for a peer that lacks the feature, a KEEPALIVE.
func (f Form) AppendKeepalive(dst []byte, stamp [8]byte) []byte {
	if f.OldKeepalive {
		return append(dst, byte(TagKeepalive))
	}
	return append(append(dst, byte(TagKeepalive2)), stamp[:]...)
}

// AppendKeepaliveAck appends the answer to a KEEPALIVE2: the same 8 bytes.
func AppendKeepaliveAck(dst []byte, stamp [8]byte) []byte {
	return append(append(dst, byte(TagKeepalive2Ack)), stamp[:]...)
}

// ParseKeepalive reads the bytes after the tag of KEEPALIVE2 or of its answer. Error:
// [frame.ErrTruncated].
func ParseKeepalive(p []byte) (stamp [8]byte, err error) {
	if len(p) != controlSize {
		return stamp, fmt.Errorf("%w: keepalive of %d", frame.ErrTruncated, len(p))
	}
	return [8]byte(p), nil
}
