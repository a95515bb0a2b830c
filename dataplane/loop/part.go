package loop

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// A frame of which a part has come is gathered by the loop, if its Framer says how
// large it is (Taken.Need): in a buffer of the core, into which the rest is read
// directly, in large pieces if it is large.

// pieceBytes bounds the bytes of a large frame that one read takes. Each read opens the
// TCP window again, so that the peer sends on.
const pieceBytes = 1 << 20

// part is the received part of an incomplete frame. A socket makes it for its first one, and
// never if its framer is a Placer. Owner: its core.
type part struct {
	buf  *Buffer // nil: no frame is begun
	lent *Buffer // holds the bytes of the present Feed; nil: none, or the framer keeps it
	fill int     // bytes that are there
	need int     // bytes of all of the frame
	// large says that the frame under way, or the last one, is large: another may follow.
	large bool
}

// begun says that a part of a frame is there.
func (r *part) begun() bool { return r != nil && r.buf != nil }

// whole says that all bytes of a frame are there, and Feed has to see them.
func (r *part) whole() bool { return r.begun() && r.fill == r.need }

// rest is where the missing bytes belong, empty if no frame is begun.
func (r *part) rest() []byte {
	if !r.begun() {
		return nil
	}
	return r.buf.b[r.fill:r.need]
}

// target is where the next bytes of the stream belong, as Placer.Target.
func (s *Socket) target() (p []byte, ahead int) {
	if s.placer != nil {
		return s.placer.Target(s)
	}
	r := s.part
	switch p = r.rest(); {
	case len(p) > pieceBytes:
		return p[:pieceBytes], 0
	case len(p) > 0 && r.need > FurtherBytes:
		return p, NearAhead
	case r != nil && r.large:
		return p, LookAhead
	}
	return p, ReceiveBytes
}

// filled says that n bytes of the last target have come.
func (s *Socket) filled(n int) {
	if s.placer != nil {
		s.core.stats.FramesIn += uint64(s.placer.Filled(s, n))
		return
	}
	if s.part.fill += n; n > 0 && s.part.whole() {
		s.feedPart()
		s.listUnfed()
	}
}

// feed gives p to the framer, after the part of a frame that is there already. It returns
// the bytes that were neither taken nor gathered.
func (s *Socket) feed(p []byte) (rest []byte) {
	for r := s.part; r.begun(); {
		if len(p) > 1 && r.need-r.fill == 1 {
			// The size may be unknown: the framer is not asked for each byte.
			r.need = min(r.fill+len(p), len(r.buf.b))
		}
		n := copy(r.rest(), p)
		r.fill += n
		p = p[n:]
		if r.fill < r.need || !s.feedPart() || len(p) == 0 {
			return p
		}
	}
	t := s.report(p)
	if s.part != nil && t.Frames > 0 {
		s.part.large = false
	}
	if rest = p[t.Bytes:]; s.dead || s.paused != nil || t.Need <= len(rest) || len(rest) == 0 {
		return rest
	}
	s.beginPart(rest, t.Need)
	return nil
}

// feedPart gives the framer the gathered frame. It returns false if the framer does not
// go on with the bytes after it.
func (s *Socket) feedPart() bool {
	r := s.part
	b, p := r.buf, r.buf.b[:r.fill:r.fill]
	r.lent, r.buf = b, nil
	t := s.report(p)
	kept := r.lent == nil
	r.lent = nil
	rest := p[t.Bytes:]
	if len(rest) == 0 || s.dead {
		if !kept {
			s.core.pool.put(b)
		}
		return !s.dead && s.paused == nil
	}
	more := s.paused == nil && t.Need > len(rest)
	need := len(rest)
	if more {
		need = t.Need
	}
	if t.Bytes > 0 || kept || need > len(b.b) {
		s.beginPart(rest, need)
		if !kept {
			s.core.pool.put(b)
		}
		return more && !s.dead
	}
	r.buf, r.need = b, need
	s.choosePartRead()
	return more
}

// errTookNothing ends the socket of a framer that the loop would ask without end.
var errTookNothing = errors.New("loop: the framer has taken no byte, and Taken.Need asks for no more bytes than there are")

// report has the framer take frames of p, and counts them.
func (s *Socket) report(p []byte) Taken {
	s.feeding = true
	t := s.framer.Feed(s, p)
	s.feeding = false
	s.core.stats.FramesIn += uint64(t.Frames)
	invariants.Check(t.Bytes >= 0 && t.Bytes <= len(p), "a framer has taken more than there is")
	if t.Bytes == 0 && t.Need <= len(p) && len(p) > 0 && s.Reading() {
		s.Fault(errTookNothing)
	}
	return t
}

// beginPart begins to gather a frame of need bytes, of which p is there.
func (s *Socket) beginPart(p []byte, need int) {
	b, err := s.core.pool.get(need)
	if err != nil {
		s.Fault(fmt.Errorf("frame of %d bytes: no memory: %w", need, err))
		return
	}
	if s.part == nil {
		s.part = new(part)
	}
	s.part.buf, s.part.need, s.part.fill = b, need, copy(b.b, p)
	s.choosePartRead()
}

// choosePartRead chooses how the rest of the frame is read.
func (s *Socket) choosePartRead() {
	if s.part.large = s.part.need >= s.core.cfg.LargeFrom; s.part.large {
		s.ReadInPlace()
	}
}

// dropPart lets go of the frame that is not complete.
func (s *Socket) dropPart() {
	if r := s.part; r.begun() {
		s.core.pool.put(r.buf)
		r.buf = nil
	}
}

// Keep returns a buffer that begins with p, the beginning of the bytes of the present Feed;
// without a copy if the loop has gathered them. The framer gives the buffer back
// (Buffer.LetGo). It fails only if the kernel refuses memory. In Feed only, once.
func (s *Socket) Keep(p []byte) (*Buffer, error) {
	s.core.assertOwner()
	if r := s.part; r != nil && r.lent != nil {
		b := r.lent
		r.lent = nil
		return b, nil
	}
	b, err := s.core.pool.get(len(p))
	if err == nil {
		copy(b.b, p)
	}
	return b, err
}
