package load

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

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
