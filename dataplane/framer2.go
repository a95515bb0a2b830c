package dataplane

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// headMax is the largest part of a frame that must be there before its length
// is known: 96 bytes in msgr2.1's secure mode.
const headMax = 96

// framer2 is the framer of msgr2. Owner: the handler's core.
type framer2 struct {
	intake
	enc  *frame.Encoder
	dec  *frame.Decoder
	head [headMax]byte // head of the frame under way, if it is not in place
	hd   frame.Header
}

func (r *framer2) frame() *intake         { return &r.intake }
func (r *framer2) underWay() fmt.Stringer { return r.hd.Tag }
func (r *framer2) answers() bool          { return true }

func (r *framer2) underWayID() (seq, tid uint64, ok bool) {
	hd, err := frame.ParseMessageHeader(r.target.Bytes()[r.at:][:r.hd.Len[0]])
	return hd.Seq, hd.TID, err == nil
}

func (r *framer2) end(s *loop.Socket) {
	r.abandon(s)
	r.dec.Wipe()
	r.enc.Wipe()
	r.enc = nil
}

// Filled implements Placer.
func (r *framer2) Filled(s *loop.Socket, n int) (frames int) {
	if r.h.local.guess.buf != nil {
		return r.guessed(s, n)
	}
	return r.intake.Filled(s, n)
}

// next implements framer.
func (r *framer2) next(s *loop.Socket, p []byte, frames int) ([]byte, int, bool) {
	for s.Reading() {
		head := r.head[:r.headLen] // opened before, and kept
		switch {
		case r.opened:
		case r.headLen == 0 && r.hd.Num > 0 && r.dec.Repeats(p):
			// All that open has noted of the last frame holds for this one.
			head, p, r.opened = p[:frame.PreambleSize], p[frame.PreambleSize:], true
		default:
			if head, p = r.takeHead(p, r.head[:r.dec.HeadSize()]); head == nil || !r.open(s, head) {
				return nil, frames, false
			}
		}
		if r.h.probe != nil && !r.mayRead(s, r.hd.Tag) {
			r.keepHead(head)
			return p, frames, false
		}
		whole, ok := r.mayGoOn(s, p, r.hd.Tag == frame.TagMessage, r.payload())
		if !ok || !whole {
			r.keepHead(head)
			return p, frames, ok && r.gather(s)
		}
		rest := p[:r.size:r.size]
		p = p[r.size:]
		r.finish(s, head, rest, nil)
		if frames++; len(p) > 0 && s.Core().Late(frames) {
			break
		}
	}
	return p, frames, false
}

// keepHead copies a head that lies in the receive buffer.
func (r *framer2) keepHead(head []byte) {
	if r.headLen == 0 {
		r.headLen = copy(r.head[:], head)
	}
}

// open reads the head: from here on the frame's length is known and bounded.
func (r *framer2) open(s *loop.Socket, head []byte) bool {
	hd, err := r.dec.Open(head)
	if err != nil {
		s.Fault(fmt.Errorf("frame head: %w", err))
		return false
	}
	if err := inDataPhase(hd.Tag); err != nil {
		s.Fault(err)
		return false
	}
	r.hd, r.size, r.opened = hd, r.dec.RestSize(hd), true
	r.grows = hd.Tag == frame.TagMessage && hd.Compressed()
	r.classify(s, int(hd.Len[3]))
	return true
}

// payload is the size of the message as it was announced.
func (r *framer2) payload() int64 {
	return int64(r.hd.Len[1]) + int64(r.hd.Len[2]) + int64(r.hd.Len[3])
}

// gather sets a buffer for the rest of the frame. Aligned data begins on a page boundary, which
// makes the buffer larger.
func (r *framer2) gather(s *loop.Socket) bool {
	prefix, _ := r.dec.Split(r.hd)
	at, data, clear := r.headLen, int(r.hd.Len[3]), r.hd.Flags == 0 && !r.dec.IsSecure()
	if data > 0 && clear && r.hd.Tag == frame.TagMessage && r.h.awaitsData() {
		if !r.lendApart(s, at, prefix, data, 0) {
			return false
		}
	} else {
		at = r.placeOf(at)
		if !r.lend(s, at, r.size) {
			return false
		}
	}
	// The head stands before the rest: an encrypted piece is decrypted in place.
	copy(r.target.Bytes()[at-r.headLen:], r.head[:r.headLen])
	r.sumData()
	return true
}

// sumData has the crc of large data taken as its bytes come.
func (r *framer2) sumData() {
	if (r.large || r.apart.on) && r.dec.ChecksSegments() && r.hd.Flags == 0 {
		prefix, _ := r.dec.Split(r.hd)
		r.crcFrom, r.crcTo, r.crc = prefix, prefix+int(r.hd.Len[3]), frame.SegmentCRCInit
	}
}

// finish implements framer. b is nil if rest lies in a receive buffer.
func (r *framer2) finish(s *loop.Socket, head, rest []byte, b *loop.Buffer) {
	f := &r.h.local.received
	f.Header = r.hd
	var err error
	d := r.h.cameApart()
	switch {
	case d != nil:
		if *f, err = r.dec.FinishSplit(r.hd, rest[:d.from], r.crc, rest[d.from:]); err == nil && !f.Aborted {
			f.Seg[3] = d.place
		}
	case r.crcTo > r.crcFrom && b != nil:
		if *f, err = r.dec.FinishSplit(r.hd, rest[:r.crcFrom], r.crc, rest[r.crcTo:]); err == nil {
			f.Seg[3] = rest[r.crcFrom:r.crcTo:r.crcTo]
		}
	default:
		err = r.dec.FinishInto(f, head, rest)
	}
	if taken, ok := r.complete(s, r.payload(), b, err); ok {
		r.deliver(s, f, b, taken)
	}
}

// deliver takes one complete frame of the data phase. b is the buffer of its payload, nil if
// that lies in a receive buffer; taken is its charge on the throttles.
func (r *framer2) deliver(s *loop.Socket, f *frame.Frame, b *loop.Buffer, taken loop.Charge) {
	c, h := s.Core(), r.h
	if t := h.tap; t != nil {
		t.Frame(probe.Frame{Tag: f.Tag, Seg: f.Seg, Compressed: f.Compressed(), Aborted: f.Aborted})
	}
	var err error
	switch {
	case f.Aborted: // it counts as not sent (Ceph's frames_v2.h)
		h.local.counts.Aborted++
		h.useless(c)
	case f.Tag == frame.TagMessage:
		var hd frame.MessageHeader
		if hd, err = frame.ParseMessageHeader(f.Seg[0]); err == nil {
			h.message(c, &hd, f, false, b, taken)
			return
		}
	default:
		err = h.control(c, f.Tag, f.Seg[0])
	}
	h.discard(c, b, taken)
	if err != nil {
		s.Fault(err)
	}
}

// frameOverhead bounds the bytes of a gathered message frame beside its payload: preamble 32,
// header 41, crc 4, epilogue 17.
const frameOverhead = 128

// messageComplete is the flag byte that userland peers send.
const messageComplete = 3

func (r *framer2) carriesAcks() bool { return true }

// appendControl implements framer.
func (r *framer2) appendControl(b *flush, tag frame.Tag, payload [8]byte) error {
	b.local.scratch = payload
	out, err := r.enc.AppendFrame(b.w.Out, tag, b.local.scratch[:])
	b.w.Out = out
	if t := r.h.tap; t != nil && err == nil {
		t.Frame(probe.Frame{Sent: true, Tag: tag, Seg: [4][]byte{b.local.scratch[:]}})
	}
	return err
}

// appendMessage implements framer.
func (r *framer2) appendMessage(b *flush, m *Message) (fits bool, err error) {
	h, w := r.h, b.w
	hd := frame.MessageHeader{
		Seq: h.outSeq + 1, TID: m.TID, Type: m.Type, Priority: m.effectivePriority(), Version: m.Version,
		DataOff: m.DataOff, AckSeq: h.inSeq, Flags: messageComplete, CompatVersion: m.CompatVersion,
	}
	if r.enc.Gathers() {
		copied := b.copied(m)
		if w.Room() < frameOverhead+copied {
			return false, nil
		}
		w.Out = r.enc.AppendMessage(w.Out, &hd, len(m.Front), len(m.Middle), len(m.Data))
		b.payload(m, copied)
		m.sums(&b.sums, false, r.enc.SumsSegments(), r.enc.SumsSegments())
		w.Out = r.enc.AppendEnd(w.Out, &b.sums)
	} else {
		hd.Put(&b.local.header)
		if fits, err = r.appendSealed(w, m, &b.local.header); !fits {
			return false, err
		}
	}
	if t := h.tap; t != nil {
		hd.Put(&b.local.header)
		t.Frame(probe.Frame{Sent: true, Tag: frame.TagMessage, Seg: [4][]byte{b.local.header[:], m.Front, m.Middle, m.Data}})
	}
	return true, nil
}

// appendSealed appends a frame that is made as a whole: encrypted, straight from where
// its payload lies if that is large, or compressed.
func (r *framer2) appendSealed(w *loop.Write, m *Message, header *[frame.MessageHeaderSize]byte) (fits bool, err error) {
	size := r.enc.FrameSize(len(header), len(m.Front), len(m.Middle), len(m.Data))
	if size <= w.Room() {
		w.Out, err = r.enc.AppendFrame(w.Out, frame.TagMessage, header[:], m.Front, m.Middle, m.Data)
		return err == nil, err
	}
	if size <= loop.SlabBytes/2 {
		return false, nil // it has room in the next write
	}
	buf, err := w.Extra(size)
	if err != nil {
		return false, err
	}
	out, err := r.enc.AppendFrame(buf, frame.TagMessage, header[:], m.Front, m.Middle, m.Data)
	if err != nil {
		return false, err
	}
	w.Refer(out)
	return true, nil
}

// A large message is often followed by one with the same header. So the next frame is read as
// if it had it: its header and its data go to their places with the first read. A wrong guess
// costs a copy, like all bytes that are not read into their place.

// guess is memory for the next frame. It is lent from Target to Filled, between which the core
// only reads: so one for each core is enough.
type guess struct {
	buf *loop.Buffer // nil: none is lent
	at  int          // start of the rest, after the header
}

// Target implements Placer.
func (r *framer2) Target(s *loop.Socket) (p []byte, ahead int) {
	if !r.large || r.target != nil || r.opened || r.headLen > 0 || !r.mayRepeat() {
		return r.intake.Target(s)
	}
	at := r.placeOf(frame.PreambleSize)
	b, err := s.Core().Lend(at + r.size)
	if err != nil {
		return r.intake.Target(s)
	}
	r.h.local.guess = guess{b, at}
	p = b.Bytes()[at-frame.PreambleSize : at+r.size]
	if len(p) > pieceBytes {
		return p[:pieceBytes], 0
	}
	return p, loop.LookAhead
}

// mayRepeat says that the parts of the last frame lay on the wire as in memory, and that no
// probe or posting decides about the next one.
func (r *framer2) mayRepeat() bool {
	return r.hd.Tag == frame.TagMessage && r.hd.Flags == 0 && !r.dec.IsSecure() && r.h.probe == nil && r.h.posts == nil
}

// placeOf is the offset of the rest of the frame in its buffer, at least at, the size of the
// header: aligned data then begins on a page.
func (r *framer2) placeOf(at int) int {
	if r.aligned {
		prefix, _ := r.dec.Split(r.hd)
		at += (pageSize - (at+prefix)%pageSize) % pageSize
	}
	return at
}

// guessed says that n bytes are there of the frame that was guessed.
func (r *framer2) guessed(s *loop.Socket, n int) (frames int) {
	g := r.h.local.guess
	r.h.local.guess = guess{}
	p := g.buf.Bytes()[g.at-frame.PreambleSize:][:n]
	if !r.dec.Repeats(p) || !r.admitted(s, r.payload(), false) {
		if n > 0 && s.Reading() {
			p, frames = r.feed(s, p)
		}
		s.Unread(p)
		s.Core().TakeBack(g.buf)
		return frames
	}
	r.keepHead(p[:frame.PreambleSize])
	r.opened, r.admit = true, true
	p = p[frame.PreambleSize:]
	r.hold(s, g.buf, g.at)
	r.sumData()
	n = r.reserve(s, len(p))
	s.Unread(p[n:])
	if n > 0 && r.filled(n) {
		r.gathered(s)
		frames = 1
	}
	return frames
}
