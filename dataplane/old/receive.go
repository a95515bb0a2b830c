package dataplane

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"
)

// headMax is the largest part of a frame that must be there before its length
// is known: 96 bytes in msgr2.1's secure mode.
const headMax = 96

// frameReader cuts the byte stream of one socket into frames. A frame that
// lies whole in the bytes that came is parsed in place; the rest of one that
// does not, and of every one with a large data segment, is gathered in a
// buffer that then belongs to its message. Owner: the socket's core.
//
// A frame passes through these points, in this order:
//
//	head incomplete -> opened (length known) -> admitted (throttles) -> [target] -> delivered
type frameReader struct {
	dec *frame.Decoder

	head    [headMax]byte // head of the frame under way, if it is not in place
	headLen int
	opened  bool
	hd      frame.Header
	size    int // bytes behind the head
	taken   throttled
	admit   bool
	passed  bool // the break point was asked
	stall   bool // and stops the connection behind this frame

	target *buffer // where the rest is gathered
	at     int     // start of the rest in target; the head stands before it
	fill   int     // bytes of the rest that are there

	// Running crc of a large data segment, taken while its bytes are cached.
	crcFrom, crcTo int // the data segment within the rest; equal: no running crc
	crc            uint32
}

// rest is where the bytes that the frame still lacks belong, empty if no
// target is set.
func (r *frameReader) rest() []byte {
	if r.target == nil {
		return nil
	}
	return r.target.b[r.at+r.fill : r.at+r.size]
}

// feed takes received bytes and delivers the frames that they complete. It
// returns what it did not take because the socket paused; p is valid only
// during the call.
func (r *frameReader) feed(s *socket, p []byte) []byte {
	for !s.dead && s.paused == nil {
		if r.target != nil {
			if len(p) == 0 {
				return nil
			}
			n := copy(r.rest(), p)
			p = p[n:]
			r.filled(s, n)
			continue
		}
		head := r.head[:r.headLen] // opened before, and kept
		if !r.opened {
			if head, p = r.takeHead(p); head == nil {
				return nil
			}
			if !r.open(s, head) {
				return nil
			}
		}
		if !r.admit && (!r.mayRead(s) || !r.admitted(s)) {
			r.keepHead(head)
			return p
		}
		large := int(r.hd.Len[3]) >= s.core.cfg.LargeFrom
		switch {
		case len(p) >= r.size && !large:
			rest := p[:r.size:r.size]
			p = p[r.size:]
			r.finish(s, head, rest, nil)
		case len(p) == 0 && !large:
			r.keepHead(head)
			return nil
		default:
			r.keepHead(head)
			if !r.gather(s, large) {
				return nil
			}
		}
	}
	return p
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
func (r *frameReader) open(s *socket, head []byte) bool {
	hd, err := r.dec.Open(head)
	if err != nil {
		s.fault(fmt.Errorf("frame head: %w", err))
		return false
	}
	r.hd, r.size, r.opened = hd, r.dec.RestSize(hd), true
	return true
}

// admitted takes the message's share of the throttles, before anything of its
// payload is stored.
func (r *frameReader) admitted(s *socket) bool {
	if r.hd.Tag == frame.TagMessage && s.handler != nil {
		payload := int64(r.hd.Len[1]) + int64(r.hd.Len[2]) + int64(r.hd.Len[3])
		taken, full := s.handler.throttles.take(payload, s.vain)
		if full != nil {
			s.pause(full, s.handler.throttles.units(full, payload))
			return false
		}
		r.taken = taken
		s.retrying, s.vain = false, 0
	}
	r.admit = true
	return true
}

// gather sets a buffer for the rest of the frame. Large data begins on a page
// boundary of it.
func (r *frameReader) gather(s *socket, large bool) bool {
	prefix, _ := r.dec.Split(r.hd)
	at := r.headLen
	if large {
		at += (pageSize - (at+prefix)%pageSize) % pageSize
		s.preferReady()
	}
	b, err := s.core.pool.get(at + r.size)
	if err != nil {
		s.fault(fmt.Errorf("frame of %d bytes: no memory: %w", r.size, err))
		return false
	}
	// The head stands before the rest: what is encrypted as one piece is
	// decrypted in place.
	copy(b.b[at-r.headLen:], r.head[:r.headLen])
	r.target, r.at, r.fill = b, at, 0
	r.crcFrom, r.crcTo = 0, 0
	if large && r.dec.ChecksSegments() && r.hd.Flags == 0 {
		r.crcFrom, r.crcTo, r.crc = prefix, prefix+int(r.hd.Len[3]), frame.SegmentCRCInit
	}
	return true
}

// filled notes that n more bytes of the rest are in the target.
func (r *frameReader) filled(s *socket, n int) {
	from := r.fill
	r.fill += n
	if r.crcTo > r.crcFrom {
		lo, hi := max(from, r.crcFrom), min(r.fill, r.crcTo)
		if lo < hi {
			r.crc = frame.SegmentCRC(r.crc, r.target.b[r.at+lo:r.at+hi])
		}
	}
	if r.fill < r.size {
		return
	}
	b := r.target
	r.target = nil
	r.finish(s, b.b[r.at-r.headLen:r.at], b.b[r.at:r.at+r.size], b)
}

// finish checks a complete frame and delivers it. b is the buffer that holds
// rest, nil if it lies in a receive buffer.
func (r *frameReader) finish(s *socket, head, rest []byte, b *buffer) {
	var f frame.Frame
	var err error
	if r.crcTo > r.crcFrom && b != nil {
		if f, err = r.dec.FinishSplit(r.hd, rest[:r.crcFrom], r.crc, rest[r.crcTo:]); err == nil {
			f.Seg[3] = rest[r.crcFrom:r.crcTo:r.crcTo]
		}
	} else {
		f, err = r.dec.Finish(r.hd, head, rest)
	}
	taken := r.taken
	stall := r.stall
	r.headLen, r.opened, r.admit, r.taken = 0, false, false, throttled{}
	r.passed, r.stall = false, false
	r.crcFrom, r.crcTo = 0, 0
	if err != nil {
		taken.giveBack()
		if b != nil {
			s.core.pool.put(b)
		}
		s.fault(fmt.Errorf("%v frame: %w", r.hd.Tag, err))
		return
	}
	if stall {
		s.handler.holdOut = true
		if s.going != nil {
			s.going.holdOut = true
		}
		s.hold()
	}
	s.handler.frame(s, &f, b, taken)
}

// reset lets go of an unfinished frame.
func (r *frameReader) reset(s *socket) {
	if r.target != nil {
		s.core.pool.put(r.target)
		r.target = nil
	}
	if !mutant.LeaveInThrottle {
		r.taken.giveBack()
	}
	if r.dec != nil {
		r.dec.Wipe()
	}
}
