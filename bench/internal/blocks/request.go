package blocks

import (
	"encoding/binary"
	"fmt"
)

// Kind is the kind of a request.
type Kind uint8

// The kinds.
const (
	Read  Kind = iota + 1 // the blocks
	Write                 // that they are durable before it is answered
)

// Flags of a Request.
const (
	Direct  uint8 = 1 << iota // past the page cache
	Grouped                   // a write may share its sync with others
)

// The types of messages. An answer of TypeFailed has the reason in its front, or with raw
// connections as its data.
const (
	TypeRequest uint16 = 0x0bf0 + iota
	TypeDone
	TypeFailed
)

// RequestSize is a Request in bytes: the front of a message.
const RequestSize = 16

// MaxLen bounds the data of one request, in bytes.
const MaxLen = 1 << 20

// Request is a request of a client.
type Request struct {
	Off   int64
	Len   int // bytes
	Kind  Kind
	Flags uint8
}

// Put encodes r.
func (r Request) Put(p *[RequestSize]byte) {
	binary.LittleEndian.PutUint64(p[0:], uint64(r.Off))
	binary.LittleEndian.PutUint32(p[8:], uint32(r.Len))
	p[12], p[13], p[14], p[15] = byte(r.Kind), r.Flags, 0, 0
}

// Parse decodes a request for a file of size bytes, and checks it.
func Parse(p []byte, size int64) (Request, error) {
	if len(p) != RequestSize {
		return Request{}, fmt.Errorf("%w: a request of %d bytes", ErrBlock, len(p))
	}
	r := Request{
		Off: int64(binary.LittleEndian.Uint64(p)), Len: int(binary.LittleEndian.Uint32(p[8:])), Kind: Kind(p[12]), Flags: p[13],
	}
	ok := r.Kind == Read || r.Kind == Write
	if ok {
		ok = r.Off >= 0 && r.Off%Size == 0 && r.Len > 0 && r.Len <= MaxLen && r.Len%Size == 0 && r.Off <= size-int64(r.Len)
	}
	if !ok || r.Flags > Direct|Grouped {
		return Request{}, fmt.Errorf("%w: kind %d, flags %#x, %d bytes at %d of %d", ErrBlock, r.Kind, r.Flags, r.Len, r.Off, size)
	}
	return r, nil
}

// HeadSize is the size of the head of a request or an answer on a raw connection.
const HeadSize = 32

// Head is the head of a request or an answer on a raw connection. The data follows.
type Head struct {
	ID      uint64 // of the request
	Request        // in answers too
	Data    int    // bytes that follow
	Failed  bool   // they are the reason
}

// Put encodes h.
func (h Head) Put(p *[HeadSize]byte) {
	binary.LittleEndian.PutUint64(p[0:], h.ID)
	h.Request.Put((*[RequestSize]byte)(p[8:]))
	binary.LittleEndian.PutUint32(p[24:], uint32(h.Data))
	failed := uint32(0)
	if h.Failed {
		failed = 1
	}
	binary.LittleEndian.PutUint32(p[28:], failed)
}

// ParseHead decodes one.
func ParseHead(p *[HeadSize]byte, size int64) (Head, error) {
	r, err := Parse(p[8:8+RequestSize], size)
	h := Head{
		ID: binary.LittleEndian.Uint64(p[0:]), Request: r,
		Data: int(binary.LittleEndian.Uint32(p[24:])), Failed: binary.LittleEndian.Uint32(p[28:]) != 0,
	}
	if err == nil && h.Data > MaxLen {
		err = fmt.Errorf("%w: %d bytes of data", ErrBlock, h.Data)
	}
	return h, err
}
