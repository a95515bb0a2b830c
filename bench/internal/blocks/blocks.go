// Package blocks is shared by the clients and the servers of the storage benchmark: the content
// of the file at each offset, so that all of them can check it, and the form of requests.
package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Size is the unit of the file, in bytes: every request is for whole blocks.
const Size = 4096

// ErrBlock is wrapped by the errors of blocks with wrong content.
var ErrBlock = errors.New("wrong block")

// words is a block without its key.
const words = Size / 8

// The words of a block that are not of the pattern: its offset, at both ends, so that
// half a block is noticed, and which writing of it this is.
const (
	atOffset     = 0
	atGeneration = 1
	atEnd        = words - 1
)

func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 29
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>32
}

// Fill writes the blocks that stand at off into p, whole blocks.
func Fill(p []byte, off int64, generation uint64) {
	for len(p) >= Size {
		b := (*[Size]byte)(p)
		key := mix(uint64(off) ^ generation<<20)
		for i := range words {
			binary.LittleEndian.PutUint64(b[i*8:], key+uint64(i)*0x9e3779b97f4a7c15)
		}
		put(b, atOffset, uint64(off))
		put(b, atGeneration, generation)
		put(b, atEnd, uint64(off))
		p, off = p[Size:], off+Size
	}
}

// Stamped looks at the ends of each block: they say where it stands. It is cheap enough
// for every request.
func Stamped(p []byte, off int64) error {
	if len(p)%Size != 0 {
		return fmt.Errorf("%w: %d bytes are no whole blocks", ErrBlock, len(p))
	}
	for len(p) >= Size {
		b := (*[Size]byte)(p)
		if head, tail := get(b, atOffset), get(b, atEnd); head != uint64(off) || tail != uint64(off) {
			return fmt.Errorf("%w: at %d stands one of %d, ending as one of %d", ErrBlock, off, head, tail)
		}
		p, off = p[Size:], off+Size
	}
	return nil
}

// Check looks at every byte, and returns the generation of the blocks, which is the same
// for all of them.
func Check(p []byte, off int64) (generation uint64, err error) {
	if err := Stamped(p, off); err != nil {
		return 0, err
	}
	for at := off; len(p) >= Size; p, at = p[Size:], at+Size {
		b := (*[Size]byte)(p)
		if g := get(b, atGeneration); at == off {
			generation = g
		} else if g != generation {
			return 0, fmt.Errorf("%w: generation %d at %d, %d before", ErrBlock, g, at, generation)
		}
		key := mix(uint64(at) ^ generation<<20)
		for i := atGeneration + 1; i < atEnd; i++ {
			if get(b, i) != key+uint64(i)*0x9e3779b97f4a7c15 {
				return 0, fmt.Errorf("%w: bytes differ at %d", ErrBlock, at+int64(i)*8)
			}
		}
	}
	return generation, nil
}

func put(b *[Size]byte, i int, v uint64) { binary.LittleEndian.PutUint64(b[i*8:], v) }
func get(b *[Size]byte, i int) uint64    { return binary.LittleEndian.Uint64(b[i*8:]) }

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
	whole := r.Off%Size == 0 && r.Len%Size == 0 && r.Len > 0 && r.Len <= MaxLen
	inside := r.Off >= 0 && r.Off <= size-int64(r.Len)
	if !whole || !inside || r.Kind != Read && r.Kind != Write || r.Flags > Direct|Grouped {
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
