package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

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
