package dataplane

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// headMax is the largest part of a frame that must be there before its length
// is known: 96 bytes in msgr2.1's secure mode.
const headMax = 96

// frameReader is the Framer of a handler whose socket speaks msgr2: it cuts the byte
// stream into frames, and has the handler write (flush.go). A frame that lies whole in
// the bytes that came is parsed in place; the rest of one that does not, and of
// every one with a large data segment, is gathered in a buffer that then belongs
// to its message (intake.go). Owner: the handler's core.
type frameReader struct {
	intake
	enc  *frame.Encoder
	dec  *frame.Decoder
	head [headMax]byte // head of the frame under way, if it is not in place
	hd   frame.Header
}

func (r *frameReader) frame() *intake         { return &r.intake }
func (r *frameReader) underWay() fmt.Stringer { return r.hd.Tag }
func (r *frameReader) answers() bool          { return true }

func (r *frameReader) underWayID() (seq, tid uint64, ok bool) {
	hd, err := frame.ParseMessageHeader(r.target.Bytes()[r.at:][:r.hd.Len[0]])
	return hd.Seq, hd.TID, err == nil
}

func (r *frameReader) end(s *loop.Socket) {
	r.reset(s)
	r.enc.Wipe()
	r.enc = nil
}

// Filled implements Placer.
func (r *frameReader) Filled(s *loop.Socket, n int) (frames int) {
	if r.h.local.guess.buf != nil {
		return r.guessed(s, n)
	}
	if r.came(n) {
		r.gathered(s)
		frames = 1
	}
	return frames
}

// Gather implements Framer.
func (r *frameReader) Gather(s *loop.Socket, w *loop.Write) error { return r.h.gather(s, w) }

// Feed implements Framer: it delivers the frames that the bytes complete.
func (r *frameReader) Feed(s *loop.Socket, p []byte) loop.Taken {
	rest, frames := r.feed(s, p)
	return loop.Taken{Bytes: len(p) - len(rest), Frames: frames}
}

// feed is Feed; it returns the bytes that are not taken.
func (r *frameReader) feed(s *loop.Socket, p []byte) (rest []byte, frames int) {
	r.resumed(s)
	for s.Reading() {
		if r.gatheredAll() { // it waited for room to grow
			r.gathered(s)
			continue
		}
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
		head := r.head[:r.headLen] // opened before, and kept
		switch {
		case r.opened:
		case r.headLen == 0 && r.hd.Num > 0 && r.dec.Repeats(p):
			// All that open has noted of the last frame holds for this one.
			head, p, r.opened = p[:frame.PreambleSize], p[frame.PreambleSize:], true
		default:
			if head, p = r.takeHead(p); head == nil || !r.open(s, head) {
				return nil, frames
			}
		}
		if r.h.probe != nil && !r.mayRead(s, r.hd.Tag) {
			r.keepHead(head)
			return p, frames
		}
		whole := len(p) >= r.size && !r.aligned
		if !whole && !r.aligned && len(p) == 0 {
			r.keepHead(head)
			return nil, frames
		}
		if !r.admit {
			if r.hd.Tag == frame.TagMessage && !r.admitted(s, r.payload(), whole) {
				r.keepHead(head)
				return p, frames
			}
			r.admit = true
		}
		if whole {
			rest := p[:r.size:r.size]
			p = p[r.size:]
			r.finish(s, head, rest, nil)
			frames++
			if len(p) > 0 && s.Core().Late(frames) {
				return p, frames
			}
			continue
		}
		r.keepHead(head)
		if !r.gather(s) {
			return nil, frames
		}
	}
	return p, frames
}

// takeHead returns the head of the next frame, in place if it can, and what
// stands behind it in p; nil if it is not complete.
func (r *frameReader) takeHead(p []byte) (head, rest []byte) {
	want := r.dec.HeadSize()
	if r.headLen == 0 && len(p) >= want {
		return p[:want], p[want:]
	}
	n := copy(r.head[r.headLen:want], p)
	r.headLen += n
	if r.headLen < want {
		return nil, nil
	}
	return r.head[:want], p[n:]
}

// keepHead copies a head that lies in the receive buffer.
func (r *frameReader) keepHead(head []byte) {
	if r.headLen == 0 {
		r.headLen = copy(r.head[:], head)
	}
}

// open reads the head: from here on the frame's length is known and bounded.
func (r *frameReader) open(s *loop.Socket, head []byte) bool {
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
func (r *frameReader) payload() int64 {
	return int64(r.hd.Len[1]) + int64(r.hd.Len[2]) + int64(r.hd.Len[3])
}

// gather sets a buffer for the rest of the frame. Aligned data begins on a page
// boundary of it, which makes the buffer larger than those that are not aligned.
func (r *frameReader) gather(s *loop.Socket) bool {
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
	// The head stands before the rest: what is encrypted as one piece is
	// decrypted in place.
	copy(r.target.Bytes()[at-r.headLen:], r.head[:r.headLen])
	r.sumData()
	return true
}

// sumData has the crc of large data taken as its bytes come.
func (r *frameReader) sumData() {
	if (r.large || r.apart.on) && r.dec.ChecksSegments() && r.hd.Flags == 0 {
		prefix, _ := r.dec.Split(r.hd)
		r.crcFrom, r.crcTo, r.crc = prefix, prefix+int(r.hd.Len[3]), frame.SegmentCRCInit
	}
}

// gathered ends a frame that is whole in its buffer, or leaves it there if it has to wait.
func (r *frameReader) gathered(s *loop.Socket) {
	if !r.mayGrow(s) {
		return
	}
	b, size := r.target, r.size-r.apart.size()
	r.target = nil
	r.handOver()
	r.finish(s, b.Bytes()[r.at-r.headLen:r.at], b.Bytes()[r.at:r.at+size], b)
}

// finish checks a complete frame and delivers it. b is the buffer that holds
// rest, nil if it lies in a receive buffer.
func (r *frameReader) finish(s *loop.Socket, head, rest []byte, b *loop.Buffer) {
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
	taken, stall := r.complete(s, r.payload())
	if err != nil {
		r.h.discard(s.Core(), b, taken)
		s.Fault(fmt.Errorf("%v frame: %w", r.hd.Tag, err))
		return
	}
	if stall {
		r.h.holdOut = true
		s.Hold()
	}
	r.h.frame(s, f, b, taken)
}

// reset lets go of an unfinished frame, and of the keys. s is nil if the frame is
// between two cores.
func (r *frameReader) reset(s *loop.Socket) {
	r.abandon(s)
	if r.dec != nil {
		r.dec.Wipe()
	}
}
