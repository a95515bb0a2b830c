package frame1

import (
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
	instanceSize = 1 + 8 + addrSize
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

// common appends the bytes that both headers begin with.
func (h *Header) common(dst []byte) []byte {
	dst = le.AppendUint64(dst, h.Seq)
	dst = le.AppendUint64(dst, h.TID)
	dst = le.AppendUint16(dst, h.Type)
	dst = le.AppendUint16(dst, h.Priority)
	dst = le.AppendUint16(dst, h.Version)
	dst = le.AppendUint32(dst, h.FrontLen)
	dst = le.AppendUint32(dst, h.MiddleLen)
	dst = le.AppendUint32(dst, h.DataLen)
	return le.AppendUint16(dst, h.DataOff)
}

// appendTo appends the header without its crc. peer is the legacy address of the
// peer, of which the old header has two copies.
func (h *Header) appendTo(dst []byte, f Form, peer *[addrSize]byte) []byte {
	dst = h.common(dst)
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
