package loop

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// All sockets that have bytes to be read stand in one line, first come first served.
// A visit to a socket takes at least one large frame, or the small frames that one
// read brings; if the kernel may hold more, the socket goes to the end of the line. A
// turn makes visits until one of its bounds is reached. Then every socket with
// something to send writes, while the payload is still in the cache, and the next turn
// goes on with the line.
//
// So a connection waits for one visit to each socket before it, however much these
// have received.
const (
	// turnBytes bounds the bytes that a turn receives before it writes. Without it a
	// turn would pass megabytes through the cache before it writes the first reply.
	turnBytes = 64 << 10
	// turnFrames bounds the frames that a turn takes before it writes.
	turnFrames = 256
	// turnTime bounds the time in which a turn takes frames before it writes. It
	// matters where the handlers of the user take long, and ends a visit, too.
	turnTime = time.Millisecond
	// clockEvery is the number of frames of one visit between two looks at the clock.
	clockEvery = 16
	// visitBytes is the number of bytes after which a visit begins no further frame.
	// With one frame of 64 KiB in a visit, each frame costs a write and a wake-up of
	// the peer: four frames take a quarter less CPU. More frames hardly save more, and
	// the rest of the line waits longer.
	visitBytes = 256 << 10
	// FurtherBytes bounds the missing bytes of a frame that a visit begins after
	// another frame: the replies to the former frames would wait for a larger one, and
	// leave the cache.
	FurtherBytes = visitBytes / 2
	// stayBytes bounds the bytes of one large frame that one visit reads. A visit that
	// leaves a frame in the middle comes back to memory that is no longer in the cache,
	// and the core holds memory for many incomplete frames.
	stayBytes = 1 << 20
	// stayAlone replaces stayBytes while every socket in line is in a large frame: each
	// would come back to its own, which delays all. With 64 connections in frames of
	// 4 MiB p99 is half as long, and the server takes a tenth less CPU. A small frame
	// that comes meanwhile waits for one such visit.
	stayAlone = 4 << 20
	// LookAhead is the number of bytes that a read takes beyond the end of a large
	// frame, or before the next one: a header, or whole small frames. Bytes of another
	// large frame are copied to its place, and a large frame often follows another.
	LookAhead = 8 << 10
	// NearAhead replaces LookAhead after a frame of more than FurtherBytes, usually the
	// last one of its visit: less than a header, enough to see whether more has come.
	// LookAhead would take 8 KiB of the next frame out of the kernel, and a buffer for
	// all of it, which leaves the cache before the next visit fills it: with 16
	// connections the kernel's copy into it took 1.6 times as long at 1 MiB.
	NearAhead = 16
)

// list puts the socket at the end of the line, if it is not in it.
func (s *Socket) list() {
	if !s.listed {
		s.listed = true
		s.core.readable = append(s.core.readable, s)
		if s.small = !s.large; s.small {
			s.core.smallInLine++
		}
	}
}

// serveReadable visits the sockets in line, up to the bounds of a turn.
func (c *Core) serveReadable() {
	if len(c.readable) == 0 {
		return
	}
	received, clock := 0, uint64(clockEvery)
	for c.served < len(c.readable) {
		s := c.readable[c.served]
		c.readable[c.served] = nil
		c.served++
		s.listed = false
		if s.small {
			c.smallInLine--
		}
		if s.dead {
			continue
		}
		received += s.visit()
		frames := c.stats.FramesIn - c.turnFrom
		if received >= turnBytes || frames >= turnFrames {
			break
		}
		if frames >= clock {
			if c.late() {
				break
			}
			clock = frames + clockEvery
		}
	}
	invariants.Check(c.waitsToRead() || c.smallInLine == 0, "nobody stands in line, and some are counted")
	if c.served >= len(c.readable)-c.served { // half of the line has been served
		n := copy(c.readable, c.readable[c.served:])
		clear(c.readable[n:])
		c.readable, c.served = c.readable[:n], 0
	}
}

// late says that the time of the turn for frames is over.
func (c *Core) late() bool { return c.cfg.Now()-c.now >= turnTime }

// Late says that the time of the turn for frames is over. Feed calls it after each frame,
// with the number of frames that it has taken, and stops if it returns true. It reads the
// clock once in clockEvery frames. On the core.
func (c *Core) Late(frames int) bool {
	c.assertOwner()
	return (c.stats.FramesIn-c.turnFrom+uint64(frames))%clockEvery == 0 && c.late()
}

// waitsToRead says whether a socket stands in line.
func (c *Core) waitsToRead() bool { return c.served < len(c.readable) }

// stay bounds the bytes of one large frame that a visit reads.
func (c *Core) stay() int {
	if c.smallInLine > 0 {
		return stayBytes
	}
	return stayAlone
}

// visit reads once, or some large frames, and returns the number of bytes that came.
// If the kernel may hold more, the socket goes to the end of the line.
func (s *Socket) visit() (got int) {
	if s.framer != nil && s.paused == nil && s.unfed() {
		got = s.Backlog()
		s.stopped = true // the socket reads again after its backlog
		s.feedBacklog()
		if !s.unfed() {
			s.resumeReading()
		}
		return got - s.Backlog()
	}
	if s.way.receiving {
		return got // the bytes in the kernel come through the ring
	}
	for least, most := 0, math.MaxInt; ; {
		if s.dead || s.eof {
			return got
		}
		if s.full() {
			s.stopped = true
			return got
		}
		n, more := s.readOnce(least, most)
		got += n
		switch {
		case more == nothingMore:
			return got
		case s.unfed():
		case more == sameFrame && got < s.core.stay():
			least, most = 1, math.MaxInt // only the rest of the frame
			continue
		case more == otherFrame && n > 0 && got < visitBytes && !s.core.late():
			least, most = LookAhead, FurtherBytes
			continue
		}
		if !s.dead && !s.eof {
			s.list()
		}
		return got
	}
}

// remains says whether a read has left bytes in the kernel.
type remains uint8

const (
	nothingMore remains = iota // an event announces the next bytes
	otherFrame                 // there may be bytes of another frame
	sameFrame                  // there may be bytes of the frame under way
)

// readOnce does one read and delivers the bytes. The first read of a visit has least 0.
// The others read only if a frame is under way that lacks least to most bytes.
func (s *Socket) readOnce(least, most int) (got int, left remains) {
	c := s.core
	invariants.Check(!s.way.receiving, "direct read while the ring receives")
	hot := c.hot.Bytes()
	var place []byte
	ahead := len(hot)
	if s.link != nil && s.most < BacklogBytes {
		ahead = min(ahead, s.most-s.Backlog())
	}
	if s.framer != nil {
		place, ahead = s.target()
		if !s.Reading() {
			return 0, sameFrame
		}
		s.large = ahead <= LookAhead
	}
	into := len(place)
	if into < least || into > most {
		if into > 0 {
			s.filled(0)
		}
		return 0, otherFrame
	}
	if hot = hot[:min(ahead, len(hot))]; least > 0 {
		hot = hot[:min(len(hot), LookAhead)] // the visit has read enough
	}
	room := into + len(hot)
	n, errno := c.drv.Recv(s.sock, place, hot)
	if into > 0 && (errno != 0 || n <= 0) {
		s.filled(0)
	}
	switch {
	case errno == unix.EAGAIN:
		return 0, nothingMore
	case errno == unix.EINTR:
		return 0, otherFrame
	case errno != 0:
		s.Fault(fmt.Errorf("read: %w", errno))
		return 0, nothingMore
	case n == 0:
		s.end()
		return 0, nothingMore
	}
	after, frames := c.now-s.heard, c.stats.FramesIn
	s.touched, s.heard = c.now, c.now
	c.stats.BytesIn += uint64(n)
	c.stats.Reads++
	if into > 0 {
		s.filled(min(n, into))
	}
	if n > into && !s.dead {
		s.deliver(hot[:n-into])
	}
	s.didRead(n, c.stats.FramesIn-frames, after)
	switch {
	case n < room && !s.ending:
		// A short read means that the kernel has no more, unless the end of the
		// stream came with the last bytes: there is no further edge for it.
		return n, nothingMore
	case into > 0 && len(hot) > 0:
		return n, otherFrame
	}
	return n, sameFrame
}
