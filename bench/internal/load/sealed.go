package load

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// sealedTogether is up to how many bytes of small encrypted requests are made
// and written at once.
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

// seal encrypts what comes next.
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

// opener decrypts the byte stream of one connection in secure mode and checks
// the replies in it.
type opener struct {
	t   *template
	dec *frame.Decoder
	order

	h      frame.Header
	opened bool   // h is that of the frame in buf
	buf    []byte // beginning of a frame whose end has not arrived
}

func (o *opener) take(p []byte, now time.Duration, done func(now time.Duration)) error {
	for len(p) > 0 {
		want := o.dec.HeadSize()
		if o.opened {
			want += o.dec.RestSize(o.h)
		}
		piece := p[:min(len(p), want-len(o.buf))]
		p = p[len(piece):]
		if len(o.buf) > 0 || len(piece) < want {
			o.buf = append(o.buf, piece...)
			piece = o.buf
		}
		if len(piece) < want {
			return nil
		}
		var err error
		if !o.opened {
			if err = o.open(piece); err == nil && o.dec.RestSize(o.h) > 0 {
				if len(o.buf) == 0 && len(p) >= o.dec.RestSize(o.h) {
					// All of it is here: it is decrypted where it lies.
					n := want + o.dec.RestSize(o.h)
					piece, p = piece[:n], p[n-want:]
				} else {
					o.buf = append(o.buf[:0], piece...)
					continue
				}
			}
		}
		if err == nil {
			err = o.finish(piece, now, done)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open decrypts a head.
func (o *opener) open(head []byte) error {
	h, err := o.dec.Open(head)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	switch {
	case h.Tag == frame.TagMessage && len(head)+o.dec.RestSize(h) == o.t.wire:
	case h.Tag == frame.TagKeepalive2, h.Tag == frame.TagKeepalive2Ack, h.Tag == frame.TagAck:
	default:
		return fmt.Errorf("%w: frame %v with segments %v", ErrReply, h.Tag, h.Len[:h.Num])
	}
	o.h, o.opened = h, true
	if o.buf != nil || o.t.wire <= scratchSize {
		return nil
	}
	o.buf = make([]byte, 0, o.t.wire) // it never fits into one read
	return nil
}

// finish decrypts a frame and checks it, if it is a reply.
func (o *opener) finish(p []byte, now time.Duration, done func(now time.Duration)) error {
	n := o.dec.HeadSize()
	f, err := o.dec.Finish(o.h, p[:n], p[n:])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	o.opened, o.buf = false, o.buf[:0]
	if f.Tag != frame.TagMessage {
		return nil
	}
	h, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	if err := o.next(h.Seq, h.TID); err != nil {
		return err
	}
	if len(f.Seg[3]) != len(o.t.payload) || h.TID&SampleMask == 0 && !bytes.Equal(f.Seg[3], o.t.payload) {
		return fmt.Errorf("%w: other data came back", ErrReply)
	}
	done(now)
	return nil
}
