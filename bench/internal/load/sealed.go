package load

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// sealedTogether bounds the bytes of small encrypted requests that are written at once.
const sealedTogether = 32 << 10

// sealer keeps the requests of one connection in secure mode. They are encrypted
// when their turn comes, so that a large one is in memory once only.
type sealer struct {
	t   *template
	enc *frame.Encoder
	seq uint64 // of the last request encrypted
	tid uint64 // of the next one

	header [headerLen]byte
	queued int    // requests not encrypted yet
	out    []byte // encrypted ones
	sent   int    // bytes of out that are
}

func (s *sealer) request() { s.queued++ }

func (s *sealer) pending() bool { return s.queued > 0 || s.sent < len(s.out) }

func (s *sealer) withdraw() int {
	n := s.queued
	s.queued = 0
	return n
}

func (s *sealer) flush(fd int) error {
	for range writesEach {
		if s.sent == len(s.out) {
			if err := s.seal(); err != nil {
				return err
			}
		}
		if s.sent == len(s.out) {
			return nil
		}
		n, err := unix.Write(fd, s.out[s.sent:])
		switch err {
		case nil:
			s.sent += n
		case unix.EAGAIN:
			return nil
		case unix.EINTR:
		default:
			return err
		}
	}
	return nil
}

// seal encrypts the next requests.
func (s *sealer) seal() error {
	s.out, s.sent = s.out[:0], 0
	for s.queued > 0 && (len(s.out) == 0 || len(s.out)+s.t.wire <= sealedTogether) {
		s.seq++
		h := requestHeader()
		h.Seq, h.TID = s.seq, s.tid
		h.Put(&s.header)
		out, err := s.enc.AppendFrame(s.out, frame.TagMessage, s.header[:], nil, nil, s.t.payload)
		if err != nil {
			return err
		}
		s.out = out
		s.tid++
		s.queued--
	}
	return nil
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

// reply checks one.
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
