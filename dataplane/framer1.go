package dataplane

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// ErrCloseReceived: the peer has sent CLOSE, which only msgr1 has. It ends the
// session.
var ErrCloseReceived = errors.New("dataplane: the peer has sent CLOSE")

// Source says who sends a message, in the header of msgr1 (msgr1.md, section 10.1).
type Source struct {
	Type uint8 // entity type
	Num  int64 // its number, -1 while it has none
}

// framer1 is the Framer of a handler whose socket speaks msgr1, as frameReader is for
// msgr2; what both have is in intake.go. Its frames are a tag and what that asks for.
// The head of a message is the tag with the header, the rest its three segments and the
// footer. Writing is in write1.go. Owner: the handler's core.
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

// Filled implements Placer.
func (r *framer1) Filled(s *loop.Socket, n int) (frames int) {
	if r.came(n) {
		r.gathered(s)
		frames = 1
	}
	return frames
}

// Gather implements Framer.
func (r *framer1) Gather(s *loop.Socket, w *loop.Write) error { return r.h.gather(s, w) }

// Feed implements Framer: it delivers the frames that the bytes complete.
func (r *framer1) Feed(s *loop.Socket, p []byte) loop.Taken {
	rest, frames := r.feed(s, p)
	return loop.Taken{Bytes: len(p) - len(rest), Frames: frames}
}

// feed is Feed; it returns the bytes that are not taken.
func (r *framer1) feed(s *loop.Socket, p []byte) (rest []byte, frames int) {
	r.resumed(s)
	for s.Reading() {
		if r.target != nil {
			if len(p) == 0 {
				return nil, frames
			}
			n, whole := r.take(s, p)
			if n == 0 {
				return p, frames
			}
			p = p[n:]
			if whole {
				r.gathered(s)
				frames++
			}
			continue
		}
		if !r.opened {
			var head []byte
			if head, p = r.takeHead(s, p); head == nil || !r.open(s, head) {
				return nil, frames
			}
		}
		if !r.mayRead(s, r.probed()) {
			return p, frames
		}
		if r.tag != frame1.TagMessage {
			r.control(s)
		} else {
			var goesOn bool
			if p, goesOn = r.message(s, p); !goesOn {
				return p, frames
			}
		}
		if r.target != nil {
			continue
		}
		frames++
		if len(p) > 0 && s.Core().Late(frames) {
			return p, frames
		}
	}
	return p, frames
}

// takeHead returns the head of the next frame, in place if it can, and what stands
// behind it in p; nil if it is not complete, or there is no such frame.
func (r *framer1) takeHead(s *loop.Socket, p []byte) (head, rest []byte) {
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
	want := 1 + n
	if r.headLen == 0 && len(p) >= want {
		return p[:want], p[want:]
	}
	n = copy(r.head[r.headLen:want], p)
	r.headLen += n
	if r.headLen < want {
		return nil, nil
	}
	r.headLen = 0
	return r.head[:want], p[n:]
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
	if size > math.MaxInt32 { // whatever the limits say: no write carries more
		s.Fault(fmt.Errorf("frame head: %w: message of %d bytes", frame.ErrTooLarge, size))
		return false
	}
	r.hd, r.opened, r.size = hd, true, int(size)
	r.classify(s, int(hd.DataLen))
	return true
}

// payload is the size of the message as it was announced.
func (r *framer1) payload() int64 { return int64(r.hd.PayloadSize()) }

// message goes on with a message whose header is there: it takes its share of the
// receive budget, and delivers it if the rest lies whole in p, else sets a buffer. It
// returns what it did not take of p.
func (r *framer1) message(s *loop.Socket, p []byte) (rest []byte, goesOn bool) {
	whole := len(p) >= r.size && !r.aligned
	if !whole && !r.aligned && len(p) == 0 {
		return nil, false
	}
	if !r.admit {
		if !r.admitted(s, r.payload(), whole) {
			return p, false
		}
		r.admit = true
	}
	if !whole {
		return p, r.gather(s)
	}
	r.finish(s, p[:r.size:r.size], nil)
	return p[r.size:], true
}

// gather sets a buffer for the rest of the message. Large data begins in it where the
// header says that it does in a page (msgr1.md, section 10.5).
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
	if _, data := r.dec.Checks(); (r.large || r.apart.on) && data {
		r.crcFrom, r.crcTo, r.crc = before, before+int(r.hd.DataLen), 0
	}
	return true
}

// gathered ends a message that is whole in its buffer.
func (r *framer1) gathered(s *loop.Socket) {
	b, size := r.target, r.size-r.apart.size()
	r.target = nil
	r.handOver()
	r.finish(s, b.Bytes()[r.at:r.at+size], b)
}

// finish checks a complete message and delivers it. b is the buffer that holds rest,
// nil if it lies in a receive buffer.
func (r *framer1) finish(s *loop.Socket, rest []byte, b *loop.Buffer) {
	c, h := s.Core(), r.h
	m := received1{hd: &r.hd, form: r.dec.Form(), b: b}
	d := h.cameApart()
	for i, n := range [3]uint32{r.hd.FrontLen, r.hd.MiddleLen, r.hd.DataLen} {
		switch {
		case n == 0:
		case i == 2 && d != nil:
			m.segs[i] = d.place
		default:
			m.segs[i], rest = rest[:n:n], rest[n:]
		}
	}
	headers, data := r.dec.Checks()
	if headers {
		m.sums.Front, m.sums.Middle = frame1.SegmentCRC(0, m.segs[0]), frame1.SegmentCRC(0, m.segs[1])
	}
	switch {
	case r.crcTo > r.crcFrom:
		m.sums.Data = r.crc // it was taken as the bytes came
	case data:
		m.sums.Data = frame1.SegmentCRC(0, m.segs[2])
	}
	m.summed = [3]bool{headers, headers, data}
	err := r.dec.Footer(r.hd, rest, m.sums)
	taken, stall := r.complete(s, r.payload())
	if err != nil {
		h.discard(c, b, taken)
		s.Fault(fmt.Errorf("%v frame: %w", frame1.TagMessage, err))
		return
	}
	if stall {
		h.holdOut = true
		s.Hold()
	}
	h.message1(c, &m, taken)
}

// control handles a frame that is not a message.
func (r *framer1) control(s *loop.Socket) {
	h := r.h
	c := s.Core()
	_, stall := r.complete(s, 0)
	if stall {
		h.holdOut = true
		s.Hold()
	}
	n, _ := r.dec.Form().Size(r.tag) // it is one that the protocol has
	h.tapped(false, r.tag, r.body[:n])
	switch r.tag {
	case frame1.TagAck:
		h.heardAck(c, sequenceOf(r.body))
	case frame1.TagKeepalive: // nobody waits for an answer
		h.useless(c)
	case frame1.TagKeepalive2:
		h.heardKeepalive(c, timestampOf(r.body))
	case frame1.TagKeepalive2Ack:
		h.heardKeepaliveAck(c, timestampOf(r.body))
	}
}

// probed is the frame of msgr2 as which a probe knows the one under way.
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
