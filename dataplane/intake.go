package dataplane

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// intake is the common part of both framers: it reads the stream, and has the frame under way with
// its part of the receive budget, and the buffer in which an incomplete frame is gathered. A frame
// that lies whole in the received bytes is parsed in place. A framer embeds it, and knows the
// meaning of the bytes. Owner: the handler's core.
//
// A frame passes through these points, in this order:
//
//	head incomplete -> opened (length known) -> admitted (budget) -> [target] -> delivered
//
// An announced length costs nothing: a complete message takes its part of the receive budget as
// a whole, an incomplete one takes it as its bytes come.
type intake struct {
	h *Handler

	headLen int // bytes of the head that the framer has kept
	size    int // bytes after it
	charge  loop.Charge

	opened         bool
	large          bool // the frame under way, or the last one, has a large data segment
	aligned        bool // and this one begins on a page, in memory of its own: all large ones do
	grows          bool // it is compressed, so it takes more memory than its bytes
	admit          bool
	throttlePassed bool // the break point was asked
	stopped        bool // by a throttle, until the next Feed

	target *loop.Buffer // where the rest is gathered, but for data that is
	apart  apart
	at     int // start of the rest in target; the head stands before it
	fill   int // bytes of the rest that are there
	ahead  int // bytes that are reserved for a read under way

	// Running crc of a large data segment, taken while its bytes are cached.
	crcFrom, crcTo int // the data segment within the rest; equal: no running crc
	crc            uint32
}

// pageSize: aligned data begins on a multiple of it.
const pageSize = 4096

// classify notes the kind of data of the frame under way, by its size in bytes.
func (r *intake) classify(s *loop.Socket, data int) {
	from := r.h.pace.alignFrom
	r.large = data >= s.Core().Config().LargeFrom
	r.aligned = r.large || from > 0 && data >= from
}

// pieceBytes bounds the bytes of a large segment that one read takes, small enough that its
// crc runs over cached bytes. Each read opens the TCP window again, so that the peer sends on:
// with pieces of 256 KiB the server took a tenth more CPU for messages of 1 MiB on 16
// connections, with 4 MiB for larger ones as much as with 1 MiB.
const pieceBytes = 1 << 20

// worthARead bounds the room for which an unfinished frame waits, in bytes: enough for one
// read.
const worthARead = 64 << 10

// Target implements Placer.
func (r *intake) Target(s *loop.Socket) (p []byte, ahead int) {
	ahead = loop.ReceiveBytes
	if r.large {
		ahead = loop.LookAhead
	}
	if r.target != nil && r.size > loop.FurtherBytes {
		ahead = loop.NearAhead
	}
	if r.apart.on && !r.settle(s) {
		return nil, ahead
	}
	rest := r.rest()
	if len(rest) == 0 {
		return nil, ahead
	}
	r.ahead = r.reserve(s, min(len(rest), pieceBytes))
	if r.ahead < len(rest) || r.fill < r.apart.from {
		ahead = 0
	}
	return rest[:r.ahead], ahead
}

// Filled implements Placer.
func (r *intake) Filled(s *loop.Socket, n int) (frames int) {
	if r.charge.Unfinished() {
		r.charge.Unreserve(int64(r.ahead - n)) // the bytes that did not come
	}
	r.ahead = 0
	if n > 0 && r.filled(n) {
		r.gathered(s)
		frames = 1
	}
	return frames
}

// Feed implements Framer: it delivers the frames that the bytes complete.
func (r *intake) Feed(s *loop.Socket, p []byte) loop.Taken {
	rest, frames := r.feed(s, p)
	return loop.Taken{Bytes: len(p) - len(rest), Frames: frames}
}

// feed is Feed; it returns the bytes that are not taken.
func (r *intake) feed(s *loop.Socket, p []byte) (rest []byte, frames int) {
	r.resumed(s)
	f := r.h.framer
	for s.Reading() {
		if r.target == nil {
			var goesOn bool
			if p, frames, goesOn = f.next(s, p, frames); !goesOn {
				return p, frames
			}
		}
		if r.gatheredAll() { // it waited for room to grow
			r.gathered(s)
			continue
		}
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
	}
	return p, frames
}

// Gather implements Framer.
func (r *intake) Gather(s *loop.Socket, w *loop.Write) error { return r.h.gather(s, w) }

// takeHead returns the header of the next frame, in place if possible, and the bytes after it
// in p; nil if it is not complete. kept is the memory in which it is put together.
func (r *intake) takeHead(p, kept []byte) (head, rest []byte) {
	if r.headLen == 0 && len(p) >= len(kept) {
		return p[:len(kept)], p[len(kept):]
	}
	n := copy(kept[r.headLen:], p)
	r.headLen += n
	if r.headLen < len(kept) {
		return nil, nil
	}
	return kept, p[n:]
}

// mayGoOn decides whether a frame with a complete header goes on now. whole: its rest lies in
// p. A message takes its part of the receive budget, for its payload in bytes.
func (r *intake) mayGoOn(s *loop.Socket, p []byte, message bool, payload int64) (whole, ok bool) {
	whole = len(p) >= r.size && !r.aligned
	if !whole && !r.aligned && len(p) == 0 {
		return false, false
	}
	if !r.admit && message && !r.admitted(s, payload, whole) {
		return whole, false
	}
	r.admit = true
	return whole, true
}

// gathered ends a frame that is whole in its buffer, or leaves it there if it has to wait.
func (r *intake) gathered(s *loop.Socket) {
	if !r.mayGrow(s) {
		return
	}
	b, size := r.target, r.size-r.apart.size()
	r.target = nil
	r.handOver()
	r.h.framer.finish(s, b.Bytes()[r.at-r.headLen:r.at], b.Bytes()[r.at:r.at+size], b)
}

// HalfClosed implements loop.HalfCloser: a peer that ends its stream has left.
func (r *intake) HalfClosed(*loop.Socket) bool { return false }

// Pending implements Framer.
func (r *intake) Pending(*loop.Socket) bool {
	h := r.h
	return h.state == stateOpen && !h.holdOut && h.pendingOut()
}

// ReceiveView implements loop.ReceiveShower.
func (r *intake) ReceiveView(*loop.Socket) *loop.ReceiveView { return &r.h.receives }

// Ended implements Framer.
func (r *intake) Ended(s *loop.Socket, err error) { r.h.lost(s, err) }

// resumed notes that the socket goes on after a throttle.
func (r *intake) resumed(s *loop.Socket) {
	if r.stopped {
		r.stopped = false
		r.h.asked = s.Core().Now() // the peer was not silent: we did not read
	}
}

// admitted takes the message's part of the receive budget, for its payload in bytes: the whole
// part if the message is complete.
func (r *intake) admitted(s *loop.Socket, payload int64, whole bool) bool {
	var full *loop.Throttle
	t := r.h.throttles
	if whole {
		r.charge, full = t.Acquire(s, payload)
	} else {
		r.charge, full = t.Begin(s)
	}
	if full == nil && whole && r.grows {
		if full = r.charge.Overdrawn(s); full != nil {
			r.charge.Release()
			r.charge = loop.Charge{}
		}
	}
	if full != nil {
		r.pause(s, full, t.Units(full, payload), false)
		return false
	}
	s.Passed()
	return true
}

// mayGrow says that a gathered message which is compressed may be decompressed. Else the
// socket has paused: Feed tries again.
func (r *intake) mayGrow(s *loop.Socket) bool {
	if !r.grows {
		return true
	}
	if full := r.charge.Overdrawn(s); full != nil {
		r.pause(s, full, 1, true)
		return false
	}
	s.Passed()
	return true
}

// reserve is the number of the wanted bytes that the unfinished frame may take now. If it is 0,
// the socket has paused. The caller unreserves bytes that do not come.
func (r *intake) reserve(s *loop.Socket, want int) int {
	if !r.charge.Unfinished() || want == 0 {
		return want
	}
	n, full := r.charge.Reserve(s, int64(want))
	if full != nil {
		r.pause(s, full, int64(min(want, worthARead)), true)
		return 0
	}
	s.Passed()
	return int(n)
}

// pause stops the socket until full has room.
func (r *intake) pause(s *loop.Socket, full *loop.Throttle, need int64, begun bool) {
	r.stopped = true
	s.Pause(r.h.throttles, full, need, begun)
	r.h.watchProgress(s)
}

func (r *intake) gatheredAll() bool { return r.target != nil && r.fill == r.size }

// held is the number of received bytes of the frame under way.
func (r *intake) held() int {
	if r.target == nil {
		return r.headLen
	}
	return r.headLen + r.fill
}

// rest is where the bytes that the frame still lacks belong, or the next of them,
// empty if no target is set.
func (r *intake) rest() []byte {
	if r.target == nil {
		return nil
	}
	if r.apart.on {
		return r.missing()
	}
	return r.target.Bytes()[r.at+r.fill : r.at+r.size]
}

// lend sets a buffer for the rest of the frame, or for size bytes of it, which begins at
// byte at of the buffer.
func (r *intake) lend(s *loop.Socket, at, size int) bool {
	b, err := s.Core().Lend(at + size)
	if err != nil {
		s.Fault(fmt.Errorf("frame of %d bytes: no memory: %w", r.size, err))
		return false
	}
	r.hold(s, b, at)
	return true
}

// hold begins to gather the rest of the frame in b, from byte at on.
func (r *intake) hold(s *loop.Socket, b *loop.Buffer, at int) {
	if r.large {
		s.ReadInPlace()
	}
	r.target, r.at, r.fill = b, at, 0
	r.crcFrom, r.crcTo = 0, 0
	r.begun(s)
}

// begun notes that a frame is unfinished from now on.
func (r *intake) begun(s *loop.Socket) {
	s.Begin()
	r.h.watchProgress(s)
}

// restore goes on with an unfinished frame on another core: partial has its header and the
// received part of the rest.
func (r *intake) restore(s *loop.Socket, partial []byte) error {
	c := s.Core()
	b, err := c.Lend(r.at + r.size - r.apart.size())
	if err == nil {
		if err = r.apart.enter(c); err != nil {
			c.TakeBack(b)
		}
	}
	if err != nil {
		return fmt.Errorf("enter core %d: %w", c.ID(), err)
	}
	copy(b.Bytes()[r.at-r.headLen:], partial)
	r.target = b
	r.begun(s)
	return nil
}

// take copies bytes of the unfinished frame from p into its buffer. n is 0 if there is no room
// in the receive budget, which has stopped the socket; whole says that the frame is complete
// now.
func (r *intake) take(s *loop.Socket, p []byte) (n int, whole bool) {
	if r.apart.on && !r.settle(s) {
		return 0, false
	}
	n = r.reserve(s, min(len(p), len(r.rest())))
	if n == 0 {
		return 0, false
	}
	copy(r.rest(), p[:n])
	return n, r.filled(n)
}

// filled notes that n more bytes of the rest are in the target, and says whether
// that is all of them.
func (r *intake) filled(n int) (whole bool) {
	if r.crcTo > r.crcFrom {
		lo, hi := max(r.fill, r.crcFrom), min(r.fill+n, r.crcTo)
		if lo < hi {
			r.crc = frame.SegmentCRC(r.crc, r.rest()[lo-r.fill:hi-r.fill])
		}
	}
	r.fill += n
	return r.fill == r.size
}

// complete ends the frame under way, with its payload in bytes. It returns the charge of the
// throttles. wrong is the reason why the frame is not delivered, which faults the socket.
func (r *intake) complete(s *loop.Socket, payload int64, b *loop.Buffer, wrong error) (taken loop.Charge, ok bool) {
	r.charge.Complete(s, payload)
	taken = r.charge
	r.headLen, r.opened, r.admit, r.charge = 0, false, false, loop.Charge{}
	r.throttlePassed = false
	r.crcFrom, r.crcTo = 0, 0
	if wrong != nil {
		r.h.discard(s.Core(), b, taken)
		s.Fault(fmt.Errorf("%v frame: %w", r.h.framer.underWay(), wrong))
		return taken, false
	}
	return taken, true
}

// abandon lets go of an unfinished frame. s is nil if the frame is between two
// cores.
func (r *intake) abandon(s *loop.Socket) {
	if r.target != nil {
		s.Core().TakeBack(r.target)
		r.target = nil
	}
	r.apart.drop()
	r.charge.Abandon(s)
}
