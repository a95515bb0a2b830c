package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// ErrReply is a wrong reply of a server.
var ErrReply = errors.New("wrong reply")

// SampleMask chooses the replies whose payload is compared byte by byte: transaction ids with
// none of its bits.
const SampleMask = 63

// stage is the part of a reply to which the next received byte belongs.
type stage uint8

const (
	atPreamble stage = iota // or tag
	atHeader                // header and its crc
	atPayload
	atTail
	atSkipped // rest of a control frame
	atRaw     // anywhere in a reply of a raw server
)

// receiver cuts the byte stream of one connection into replies.
type receiver struct {
	t       *template
	dec     *frame.Decoder
	stage   stage
	part    [headMax]byte // beginning of an incomplete piece
	partLen int
	off     int  // bytes of the payload (or raw reply) that have passed
	skip    int  // bytes of a control frame still to come
	compare bool // this payload is of the sample
	order
}

// order checks that replies come in the order of the requests.
type order struct {
	seq uint64 // of the last reply
	tid uint64 // of the next one
}

func (o *order) next(seq, tid uint64) error {
	if seq != o.seq+1 {
		return fmt.Errorf("%w: sequence %d after %d", ErrReply, seq, o.seq)
	}
	if tid != o.tid {
		return fmt.Errorf("%w: transaction %#x, want %#x", ErrReply, tid, o.tid)
	}
	o.seq = seq
	o.tid++
	return nil
}

// newReceiver returns one for replies to t, the first of which carries tid.
func newReceiver(t *template, raw bool, tid uint64) receiver {
	r := receiver{t: t, order: order{tid: tid}}
	if raw {
		r.stage, r.compare = atRaw, true
		return r
	}
	r.dec = frame.NewDecoder(frame.Rev1, frame.DefaultLimits())
	return r
}

// gather returns the n bytes of the current piece, from p alone or together with earlier bytes,
// and the rest of p. ok is false if some are missing: then it has kept all of p.
func (r *receiver) gather(p []byte, n int) (piece, rest []byte, ok bool) {
	if r.partLen == 0 && len(p) >= n {
		return p[:n], p[n:], true
	}
	k := copy(r.part[r.partLen:n], p)
	r.partLen += k
	if r.partLen < n {
		return nil, nil, false
	}
	r.partLen = 0
	return r.part[:n], p[k:], true
}

// take consumes received bytes and calls done for each reply that they
// complete.
func (r *receiver) take(p []byte, now time.Duration, done func(now time.Duration)) error {
	for len(p) > 0 {
		var piece []byte
		var ok bool
		switch r.stage {
		case atPreamble:
			if piece, p, ok = r.gather(p, r.t.lead); !ok {
				return nil
			}
			if bytes.Equal(piece, r.t.head[:r.t.lead]) {
				r.stage = atHeader
			} else if err := r.controlFrame(piece); err != nil {
				return err
			}
		case atHeader:
			if piece, p, ok = r.gather(p, r.t.header+4); !ok {
				return nil
			}
			if err := r.header(piece); err != nil {
				return err
			}
		case atPayload, atRaw:
			n, complete, err := r.payload(p)
			if err != nil {
				return err
			}
			p = p[n:]
			if complete && r.stage == atRaw {
				r.tid++
				r.compare = r.tid&SampleMask == 0
				done(now)
			} else if complete {
				r.stage = atTail
			}
		case atTail:
			if piece, p, ok = r.gather(p, len(r.t.tail)); !ok {
				return nil
			}
			if !bytes.Equal(piece, r.t.tail) {
				return fmt.Errorf("%w: epilogue %x, want %x", ErrReply, piece, r.t.tail)
			}
			r.stage = atPreamble
			done(now)
		case atSkipped:
			n := min(r.skip, len(p))
			r.skip -= n
			p = p[n:]
			if r.skip == 0 {
				r.stage = atPreamble
			}
		}
	}
	return nil
}

// controlFrame looks at a preamble that is not that of a reply. Keepalives and
// acks, which a server may send at any time, are skipped.
func (r *receiver) controlFrame(lead []byte) error {
	if r.t.msgr1 {
		return r.controlTag(frame1.Tag(lead[0]))
	}
	h, err := r.dec.Open(lead)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	switch h.Tag {
	case frame.TagKeepalive2, frame.TagKeepalive2Ack, frame.TagAck:
	default:
		return fmt.Errorf("%w: frame %v with segments %v", ErrReply, h.Tag, h.Len[:h.Num])
	}
	if r.skip = r.dec.RestSize(h); r.skip > 0 {
		r.stage = atSkipped
	}
	return nil
}

// controlTag is controlFrame in msgr1.
func (r *receiver) controlTag(tag frame1.Tag) (err error) {
	switch tag {
	case frame1.TagKeepalive2, frame1.TagKeepalive2Ack, frame1.TagAck:
		r.stage = atSkipped
		r.skip, err = frame1.Form{}.Size(tag)
		return err
	}
	return fmt.Errorf("%w: %v", ErrReply, tag)
}

// header checks the header of a reply, its crc, and its lengths if they are in it.
func (r *receiver) header(p []byte) error {
	l := &r.t.layout
	if crc := frame.SegmentCRC(l.seed, p[:l.header]); crc != binary.LittleEndian.Uint32(p[l.header:]) {
		return fmt.Errorf("%w: header crc", ErrReply)
	}
	if got, want := p[l.lens:l.lensEnd], r.t.head[l.lead+l.lens:l.lead+l.lensEnd]; !bytes.Equal(got, want) {
		return fmt.Errorf("%w: lengths %x, want %x", ErrReply, got, want)
	}
	seq, tid := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	if err := r.next(seq, tid); err != nil {
		return err
	}
	r.compare = tid&SampleMask == 0
	r.stage, r.off = atPayload, 0
	return nil
}

// payload lets bytes of the payload pass, compared if they are of the sample.
func (r *receiver) payload(p []byte) (n int, complete bool, err error) {
	want := r.t.payload
	if r.stage == atRaw {
		want = r.t.frame
	}
	want = want[r.off:]
	n = min(len(want), len(p))
	if r.compare && !bytes.Equal(p[:n], want[:n]) {
		return 0, false, fmt.Errorf("%w: bytes differ at %d or later", ErrReply, r.off)
	}
	r.off += n
	if n == len(want) {
		r.off = 0
		return n, true, nil
	}
	return n, false, nil
}

// frames cuts a byte stream into frames.
type frames struct {
	dec    *frame.Decoder
	h      frame.Header
	opened bool // h is the header of the first frame
}

// next takes a frame off the beginning of p, and decrypts it in place; size is 0 if the frame
// is incomplete: then the next call has p again, and more.
func (d *frames) next(p []byte) (f frame.Frame, size int, err error) {
	head := d.dec.HeadSize()
	if len(p) < head {
		return f, 0, nil
	}
	if !d.opened {
		if d.h, err = d.dec.Open(p[:head]); err != nil {
			return f, 0, err
		}
		d.opened = true
	}
	whole := head + d.dec.RestSize(d.h)
	if len(p) < whole {
		return f, 0, nil
	}
	d.opened = false
	f, err = d.dec.Finish(d.h, p[:head], p[head:whole])
	switch f.Tag {
	case frame.TagMessage, frame.TagKeepalive2, frame.TagKeepalive2Ack, frame.TagAck:
	default:
		if err == nil {
			err = fmt.Errorf("frame %v", f.Tag)
		}
	}
	return f, whole, err
}

// opener decrypts the byte stream of one connection in secure mode and checks
// the replies in it.
type opener struct {
	t *template
	frames
	order
	buf []byte // beginning of an incomplete frame
}

func (o *opener) take(p []byte, now time.Duration, done func(now time.Duration)) error {
	if len(o.buf) > 0 {
		o.buf = append(o.buf, p...)
		p = o.buf
	}
	for {
		f, size, err := o.frames.next(p)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		if size == 0 {
			break
		}
		p = p[size:]
		if f.Tag != frame.TagMessage {
			continue
		}
		if err := o.reply(&f); err != nil {
			return err
		}
		done(now)
	}
	o.buf = append(o.buf[:0], p...)
	return nil
}

func (o *opener) reply(f *frame.Frame) error {
	h, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	if err := o.order.next(h.Seq, h.TID); err != nil {
		return err
	}
	if len(f.Seg[3]) != len(o.t.payload) || h.TID&SampleMask == 0 && !bytes.Equal(f.Seg[3], o.t.payload) {
		return fmt.Errorf("%w: other data came back", ErrReply)
	}
	return nil
}
