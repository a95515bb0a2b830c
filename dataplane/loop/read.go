package loop

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// A connection that has bytes to be read stands in one line with the others,
// first come first served. A visit takes some large frames of it, one at least,
// or what one read brings of small ones; if there may be more, it goes to the end
// of the line. A turn makes visits until one of its bounds is reached. Then
// everything that has something to send is written, while what it refers to is
// still in the cache, and the next turn goes on behind what has arrived meanwhile.
//
// So a connection waits for one visit to each of those before it, whatever
// they have to say.
const (
	// turnBytes is what a turn receives before it writes. A turn that receives
	// from all who are ready passes megabytes through the cache before the first
	// reply is written.
	turnBytes = 64 << 10
	// turnFrames is how many frames a turn takes before it writes.
	turnFrames = 256
	// turnTime is how long a turn takes frames before it writes. It counts where
	// the users' own work on frames takes long, and ends a visit, too.
	turnTime = time.Millisecond
	// clockEvery is after how many frames of one visit the clock is read.
	clockEvery = 16
	// visitBytes is after how many bytes a visit begins no further frame. One
	// frame of 64 KiB in a visit means a write, and a peer that is woken, for
	// each of them: with four the server takes a quarter less CPU, with more it
	// takes hardly less, and the others in line wait longer.
	visitBytes = 256 << 10
	// FurtherBytes is what a frame may lack at most that a visit begins behind
	// another one: the replies to those before would wait for a larger one, and
	// leave the cache.
	FurtherBytes = visitBytes / 2
	// stayBytes is what one visit reads of one large frame at most. To leave a
	// frame in the middle means to come back to memory that is not in the
	// cache any more, and to hold the memory of many frames that are not
	// complete.
	stayBytes = 1 << 20
	// stayAlone is the same while all that stand in line are in large frames:
	// each of them would come back to its own as well, which delays all. With 64
	// connections that each have a frame of 4 MiB under way p99 is half as long,
	// and the server takes a tenth less CPU. A small frame that comes meanwhile
	// waits for one such visit.
	stayAlone = 4 << 20
	// LookAhead is how many bytes are worth to be read behind a large frame, or
	// before the next one: a head, whole frames if they are small. What they
	// hold of the next large one is copied to its place, and a large frame is
	// often followed by another.
	LookAhead = 8 << 10
	// NearAhead is the same behind a frame of more than FurtherBytes, which is
	// as a rule the last one of its visit: less than a head, enough to see whether
	// more has come. Of the next frame 8 KiB would be taken out of the kernel,
	// and a buffer for all of it, which is out of the cache when the next visit
	// fills it: with 16 connections the kernel's copy into it took 1.6 times as
	// long at 1 MiB.
	NearAhead = 16
)

// list puts the socket at the end of the line of those that are read.
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
	c.closeUp()
}

// late says that the turn has taken frames for long enough.
func (c *Core) late() bool { return c.cfg.Now()-c.now >= turnTime }

// Late says, now and then, that the turn has taken frames for long enough. Feed asks
// behind each frame, with the number of those that it has taken by then, and takes no
// further one if so. On the core.
func (c *Core) Late(frames int) bool {
	c.assertOwner()
	return (c.stats.FramesIn-c.turnFrom+uint64(frames))%clockEvery == 0 && c.late()
}

// closeUp removes those that were served from the line, once they are half of
// it.
func (c *Core) closeUp() {
	if c.served < len(c.readable)-c.served {
		return
	}
	n := copy(c.readable, c.readable[c.served:])
	clear(c.readable[n:])
	c.readable, c.served = c.readable[:n], 0
}

// waitsToRead says whether a socket stands in line.
func (c *Core) waitsToRead() bool { return c.served < len(c.readable) }

// stay is what a visit reads of one large frame at most.
func (c *Core) stay() int {
	if c.smallInLine > 0 {
		return stayBytes
	}
	return stayAlone
}

// visit reads some large frames, or once, and returns the bytes that came. If
// the kernel may hold more, the socket goes to the end of the line.
func (s *Socket) visit() (got int) {
	if s.framer != nil && s.paused == nil && s.unfed() {
		got = s.Backlog()
		s.stopped = true // reading goes on behind what is here
		s.feedBacklog()
		if !s.unfed() {
			s.resumeReading()
		}
		return got - s.Backlog()
	}
	if s.way.receiving {
		return got // what is in the kernel comes through the ring
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
			least, most = 1, math.MaxInt // nothing but its rest
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

// remains says what a read has left in the kernel.
type remains uint8

const (
	nothingMore remains = iota // the next bytes are announced by an event
	otherFrame                 // there may be more, of another frame
	sameFrame                  // there may be more, of the frame under way as well
)

// readOnce does one read and delivers it. With least above 0, which only the first
// read of a visit has not, it does so for a frame under way that lacks as much,
// and not more than most.
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
	var n int
	var errno unix.Errno
	switch {
	case into == 0:
		n, errno = c.drv.Recv(s.sock, hot)
	case len(hot) > 0:
		n, errno = c.drv.Recvv(s.sock, place, hot)
	default:
		n, errno = c.drv.Recv(s.sock, place)
	}
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
