package load

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// dialect is how requests and answers look on one connection.
type dialect interface {
	// request appends one with n bytes of data, which fill writes.
	request(dst []byte, id uint64, r blocks.Request, n int, fill func(p []byte)) ([]byte, error)
	// answer takes one off the beginning of p.
	answer(p []byte) (answer, error)
	// size is the size of an answer with n bytes of data.
	size(n int) int
}

// answer is one answer. The data stays in the received bytes.
type answer struct {
	size   int  // in bytes; 0: it is not whole
	other  bool // it is none, but may be there
	failed bool // data is the reason
	id     uint64
	data   []byte
}

// rawDialect is without frames.
type rawDialect struct{ file int64 }

func (d rawDialect) request(dst []byte, id uint64, r blocks.Request, n int, fill func([]byte)) ([]byte, error) {
	at := len(dst)
	dst = slices.Grow(dst, blocks.HeadSize+n)[:at+blocks.HeadSize+n]
	blocks.Head{ID: id, Request: r, Data: n}.Put((*[blocks.HeadSize]byte)(dst[at:]))
	fill(dst[at+blocks.HeadSize:])
	return dst, nil
}

func (d rawDialect) answer(p []byte) (a answer, err error) {
	if len(p) < blocks.HeadSize {
		return a, nil
	}
	h, err := blocks.ParseHead((*[blocks.HeadSize]byte)(p), d.file)
	if err != nil || len(p) < blocks.HeadSize+h.Data {
		return a, err
	}
	a.size, a.failed, a.id = blocks.HeadSize+h.Data, h.Failed, h.ID
	a.data = p[blocks.HeadSize:a.size]
	return a, nil
}

func (rawDialect) size(n int) int { return blocks.HeadSize + n }

// framed is msgr2.1 in crc mode. It belongs to one connection.
type framed struct {
	frames
	enc   *frame.Encoder
	seq   uint64                   // of the last request
	front [blocks.RequestSize]byte // of the last request
}

func (d *framed) request(dst []byte, id uint64, r blocks.Request, n int, fill func([]byte)) ([]byte, error) {
	d.seq++
	r.Put(&d.front)
	front := d.front[:]
	h := frame.MessageHeader{Seq: d.seq, TID: id, Type: blocks.TypeRequest, Priority: 127, Version: 1, Flags: 3}
	dst = d.enc.AppendMessage(dst, &h, len(front), 0, n)
	dst = append(dst, front...)
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	fill(dst[at:])
	return d.enc.AppendClose(dst, [4][]byte{1: front, 3: dst[at : at+n]}), nil
}

func (d *framed) answer(p []byte) (a answer, err error) {
	f, size, err := d.next(p)
	a.size, a.other = size, f.Tag != frame.TagMessage
	if err != nil || size == 0 || a.other {
		return a, err
	}
	m, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil {
		return a, err
	}
	if a.id, a.data = m.TID, f.Seg[3]; m.Type != blocks.TypeDone {
		a.failed, a.data = true, fmt.Appendf(nil, "message type %d: %s", m.Type, f.Seg[1])
	}
	return a, nil
}

func (d *framed) size(n int) int { return d.enc.FrameSize(frame.MessageHeaderSize, 0, 0, n) }
