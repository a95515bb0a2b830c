package dataplane

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// ErrCloseReceived: the peer has sent CLOSE, which only msgr1 has. It ends the
// session.
var ErrCloseReceived = errors.New("dataplane: the peer has sent CLOSE")

// Source is the sender of a message, in the header of msgr1 (Ceph's msgr.h).
type Source struct {
	Type uint8 // entity type
	Num  int64 // its number, -1 while it has none
}

// framer1 is the framer of msgr1. A frame is a tag and its fields. The head of a message is the
// tag with the header, the rest its three segments and the footer. Owner: the handler's core.
type framer1 struct {
	intake
	enc    *frame1.Encoder
	dec    *frame1.Decoder
	source Source

	tag  frame1.Tag    // of the frame under way
	hd   frame1.Header // of the message under way
	body [8]byte       // of another frame under way
	head [1 + frame1.OldHeaderSize]byte
}

func (r *framer1) frame() *intake                         { return &r.intake }
func (r *framer1) underWay() fmt.Stringer                 { return r.tag }
func (r *framer1) underWayID() (seq, tid uint64, ok bool) { return r.hd.Seq, r.hd.TID, true }
func (r *framer1) end(s *loop.Socket)                     { r.abandon(s) }

// answers implements framer: a peer without KEEPALIVE2 does not answer.
func (r *framer1) answers() bool { return !r.enc.Form().OldKeepalive }

// next implements framer.
func (r *framer1) next(s *loop.Socket, p []byte, frames int) ([]byte, int, bool) {
	for s.Reading() {
		if !r.opened {
			var head []byte
			if head, p = r.nextHead(s, p); head == nil || !r.open(s, head) {
				return nil, frames, false
			}
		}
		if !r.mayRead(s, r.probed()) {
			return p, frames, false
		}
		if r.tag != frame1.TagMessage {
			r.control(s)
		} else {
			whole, ok := r.mayGoOn(s, p, true, r.payload())
			if !ok || !whole {
				return p, frames, ok && r.gather(s)
			}
			rest := p[:r.size:r.size]
			p = p[r.size:]
			r.finish(s, nil, rest, nil)
		}
		if frames++; len(p) > 0 && s.Core().Late(frames) {
			break
		}
	}
	return p, frames, false
}

// nextHead is takeHead; head is nil, too, if there is no such frame.
func (r *framer1) nextHead(s *loop.Socket, p []byte) (head, rest []byte) {
	if r.headLen == 0 {
		if len(p) == 0 {
			return nil, nil
		}
		r.tag = frame1.Tag(p[0])
	}
	n, err := r.dec.Form().Size(r.tag)
	if err != nil {
		s.Fault(fmt.Errorf("frame head: %w", err))
		return nil, nil
	}
	if head, rest = r.takeHead(p, r.head[:1+n]); head != nil {
		r.headLen = 0
	}
	return head, rest
}

// open reads a head, which is not needed any more then: from here on the length of a
// message is known and bounded.
func (r *framer1) open(s *loop.Socket, head []byte) bool {
	switch r.tag {
	case frame1.TagMessage:
	case frame1.TagClose:
		r.h.tapped(false, r.tag, nil)
		s.Fault(ErrCloseReceived)
		return false
	default:
		copy(r.body[:], head[1:])
		r.opened = true
		return true
	}
	hd, err := r.dec.Header(head[1:])
	if err != nil {
		s.Fault(fmt.Errorf("frame head: %w", err))
		return false
	}
	size := hd.PayloadSize() + uint64(r.dec.Form().FooterSize())
	if size > math.MaxInt32 { // at any limit: no write carries more
		s.Fault(fmt.Errorf("frame head: %w: message of %d bytes", frame.ErrTooLarge, size))
		return false
	}
	r.hd, r.opened, r.size = hd, true, int(size)
	r.classify(s, int(hd.DataLen))
	return true
}

// payload is the size of the message as it was announced.
func (r *framer1) payload() int64 { return int64(r.hd.PayloadSize()) }

// gather sets a buffer for the rest of the message. Large data begins in it where the
// header says that it does in a page (Ceph's msgr.h).
func (r *framer1) gather(s *loop.Socket) bool {
	at, before, off := 0, int(r.hd.FrontLen+r.hd.MiddleLen), 0
	if r.aligned {
		off = int(r.hd.DataOff) % pageSize
	}
	if r.hd.DataLen > 0 && r.h.awaitsData() {
		if !r.lendApart(s, at, before, int(r.hd.DataLen), off) {
			return false
		}
	} else {
		if r.aligned {
			at = (off - before%pageSize + pageSize) % pageSize
			if at+r.size <= pageSize { // buffers up to a page are not aligned
				at += pageSize
			}
		}
		if !r.lend(s, at, r.size) {
			return false
		}
	}
	if (r.large || r.apart.on) && r.dec.ChecksData() {
		r.crcFrom, r.crcTo, r.crc = before, before+int(r.hd.DataLen), 0
	}
	return true
}

// finish implements framer. b is nil if rest lies in a receive buffer.
func (r *framer1) finish(s *loop.Socket, _, rest []byte, b *loop.Buffer) {
	c, h := s.Core(), r.h
	f := &h.local.received
	*f = frame.Frame{}
	d := h.cameApart()
	for i, n := range [3]uint32{r.hd.FrontLen, r.hd.MiddleLen, r.hd.DataLen} {
		switch {
		case n == 0:
		case i == 2 && d != nil:
			f.Seg[i+1] = d.place
		default:
			f.Seg[i+1], rest = rest[:n:n], rest[n:]
		}
	}
	f.CRCs.Set(1, frame.SegmentCRC(0, f.Seg[1]))
	f.CRCs.Set(2, frame.SegmentCRC(0, f.Seg[2]))
	switch {
	case r.crcTo > r.crcFrom:
		f.CRCs.Set(3, r.crc) // it was taken as the bytes came
	case r.dec.ChecksData():
		f.CRCs.Set(3, frame.SegmentCRC(0, f.Seg[3]))
	}
	err := r.dec.Footer(r.hd, rest, frame1.Sums{Front: f.CRCs.Of[1], Middle: f.CRCs.Of[2], Data: f.CRCs.Of[3]})
	taken, ok := r.complete(s, r.payload(), b, err)
	if !ok {
		return
	}
	if t := h.tap; t != nil {
		t.Part(probe.Part{Kind: probe.PartOpen, Tag: r.tag, Form: r.dec.Form(), Header: &r.hd, Seg: [3][]byte(f.Seg[1:])})
	}
	hd := frame.MessageHeader{
		Seq: r.hd.Seq, TID: r.hd.TID, Type: r.hd.Type, Priority: r.hd.Priority, Version: r.hd.Version, DataOff: r.hd.DataOff,
		CompatVersion: r.hd.CompatVersion,
	}
	h.message(c, &hd, f, true, b, taken)
}

// control handles a frame that is not a message.
func (r *framer1) control(s *loop.Socket) {
	h, c := r.h, s.Core()
	r.complete(s, 0, nil, nil)
	n, _ := r.dec.Form().Size(r.tag) // it is one that the protocol has
	h.tapped(false, r.tag, r.body[:n])
	if r.tag == frame1.TagKeepalive { // it has no answer
		h.useless(c)
		return
	}
	_ = h.control(c, r.probed(), r.body[:]) // it has all bytes
}

// probed is the frame under way in the terms of msgr2, for a probe.
func (r *framer1) probed() frame.Tag {
	switch r.tag {
	case frame1.TagMessage:
		return frame.TagMessage
	case frame1.TagAck:
		return frame.TagAck
	case frame1.TagKeepalive2Ack:
		return frame.TagKeepalive2Ack
	}
	return frame.TagKeepalive2
}

// tapped gives a frame other than a message to the tap. body are the bytes after the tag.
func (h *Handler) tapped(sent bool, tag frame1.Tag, body []byte) {
	if t := h.tap; t != nil {
		t.Part(probe.Part{Sent: sent, Kind: probe.PartOpen, Tag: tag, Bytes: body})
	}
}

// ackSize is the size of an ACK of msgr1, in bytes. Every write has room left for one.
const ackSize = 9

func (r *framer1) carriesAcks() bool { return false }

// appendControl implements framer.
func (r *framer1) appendControl(b *flush, tag frame.Tag, payload [8]byte) error {
	w := b.w
	from := len(w.Out)
	switch tag {
	case frame.TagKeepalive2:
		w.Out = r.enc.Form().AppendKeepalive(w.Out, payload)
	case frame.TagKeepalive2Ack:
		w.Out = frame1.AppendKeepaliveAck(w.Out, payload)
	default:
		w.Out = frame1.AppendAck(w.Out, sequenceOf(payload))
	}
	r.h.tapped(true, frame1.Tag(w.Out[from]), w.Out[from+1:])
	return nil
}

// appendMessage implements framer.
func (r *framer1) appendMessage(b *flush, m *Message) (fits bool, err error) {
	enc, w, copied := r.enc, b.w, b.copied(m)
	if w.Room() < enc.Overhead()+ackSize+copied {
		return false, nil
	}
	hd := frame1.Header{
		Seq: r.h.outSeq + 1, TID: m.TID, Type: m.Type, Priority: m.effectivePriority(), Version: m.Version,
		FrontLen: uint32(len(m.Front)), MiddleLen: uint32(len(m.Middle)), DataLen: uint32(len(m.Data)), DataOff: m.DataOff,
		SrcType: r.source.Type, SrcNum: r.source.Num, CompatVersion: m.CompatVersion,
	}
	w.Out = enc.AppendHeader(w.Out, &hd)
	b.payload(m, copied)
	m.sums(&b.sums, true, true, enc.SumsData())
	w.Out = enc.AppendFooter(w.Out, &hd, frame1.Sums{Front: b.sums[0], Middle: b.sums[1], Data: b.sums[2]})
	if t := r.h.tap; t != nil {
		told := hd // the header itself stays on the stack
		t.Part(probe.Part{Sent: true, Kind: probe.PartOpen, Tag: frame1.TagMessage, Form: enc.Form(), Header: &told, Seg: m.segments()})
	}
	return true, nil
}
