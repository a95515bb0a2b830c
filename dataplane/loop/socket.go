package loop

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

// BacklogBytes is the number of bytes that a socket holds for a reader that does not
// take them, before it stops reading. Bytes already received may come on top.
const BacklogBytes = 256 << 10

// ErrPeerClosed ends a socket after its peer hung up. It wraps io.EOF.
var ErrPeerClosed = fmt.Errorf("the peer closed the connection: %w", io.EOF)

// Socket is one TCP connection on its core. It serves a Link during the handshake,
// then a Framer. The core owns it: call its methods on that core only.
type Socket struct {
	core *Core
	sock uring.Socket
	user uint64 // names it in completions
	ops  int32  // operations in flight; the slot is free when there is none

	dead     bool // faulted or closed: it reads and delivers nothing
	dirty    bool // in core.pending
	writing  bool // a write is in flight: there is one at most
	building bool // the framer makes the next write

	link   *Link
	framer Framer
	placer Placer // framer, if it is one

	// Receiving.
	stream
	view     *ReceiveView  // of the framer; nil: none
	listed   bool          // in core.readable
	feeding  bool          // the framer takes bytes
	large    bool          // the frame under way, or the last one, is large
	small    bool          // not large when it was listed: counted in core.smallInLine
	ending   bool          // a readiness event said that the stream ends or fails
	eof      bool          // the peer has ended its direction: the socket is half-closed
	stopped  bool          // readiness came while it was full, and does not come again
	retrying bool          // the first frame to come was paused before
	paused   *Throttle     // the throttle that the socket waits for; nil: it reads
	pausedAt time.Duration // start of the stop, or of the wait, for whatever throttle
	refused  int64         // bytes of Throttles.Shared that its connection held when that had no room; 0: it had
	began    time.Duration // time of Begin, moved by the length of pauses
	waiter   waiter        // its place in the line of paused
	part     *part         // a frame that the loop gathers; nil: there never was one
	most     int           // bound of backlog: BacklogBytes, or that of Link.ReadAhead

	// During a handshake.
	call   *linkCall // under way
	unsent []byte    // to be sent after the write in flight; none without one

	tx Write // in flight, or the next one

	detach *detachment // the socket is about to go to another core
}

// newSocket makes a socket with a slot of its own. The caller sets sock.
func newSocket(c *Core) *Socket {
	s := &Socket{core: c, most: BacklogBytes, stream: stream{touched: c.now, heard: c.now}}
	s.waiter.core, s.waiter.task.Run = c, s.unpause
	s.way.begin(c)
	s.user = c.slot(s)
	c.stats.Sockets++
	return s
}

// Core is the core that owns the socket.
func (s *Socket) Core() *Core { return s.core }

// Reading says that the socket has neither ended nor been stopped. Feed goes on only
// while this holds.
func (s *Socket) Reading() bool {
	s.core.assertOwner()
	return !s.dead && s.paused == nil
}

// Writing is the size of the write in flight, in bytes, and its age; 0 bytes: there is
// none. It is not known whether the peer has taken a part of it.
func (s *Socket) Writing() (size int, took time.Duration) {
	s.core.assertOwner()
	if !s.writing {
		return 0, 0
	}
	return s.tx.size, max(s.core.now-s.tx.began, 0)
}

// Written is the number of bytes of the writes that have ended.
func (s *Socket) Written() uint64 {
	s.core.assertOwner()
	return s.written
}

// Progress asks the kernel for the number of written bytes that the peer's kernel has, those of
// the write in flight included. before is the number at the last call; more counts for Touched.
func (s *Socket) Progress() (before, taken uint64) {
	s.core.assertOwner()
	before = s.taken
	if n := s.core.drv.Acknowledged(s.sock); n > before {
		s.taken, s.touched = n, s.core.now
	}
	return before, s.taken
}

// Quiet is the time since the last received byte.
func (s *Socket) Quiet() time.Duration {
	s.core.assertOwner()
	return max(s.core.now-s.heard, 0)
}

// Touched is the time at which bytes last came or went, on the core's clock. While the
// socket is stopped it is now: silence that we cause ourselves does not count.
func (s *Socket) Touched() time.Duration {
	s.core.assertOwner()
	if s.paused != nil {
		s.touched = s.core.now
	}
	return s.touched
}

// Behind says that the socket stands in line: the peer may have sent more bytes than
// were read.
func (s *Socket) Behind() bool {
	s.core.assertOwner()
	return s.listed
}

// HungUp says that the peer has ended its stream, or is about to. Bytes that it sent
// before may still come.
func (s *Socket) HungUp() bool {
	s.core.assertOwner()
	return s.ending || s.eof
}

// complete handles one completion of this socket.
func (s *Socket) complete(_ *Core, cp *uring.Completion) {
	if cp.Flags&uring.More == 0 {
		s.ops--
	}
	switch cp.Kind {
	case uring.KindReady:
		s.ready(cp)
	case uring.KindReceive:
		s.received(cp)
	case uring.KindSend:
		s.sent(cp.Res, cp.Flags)
	case uring.KindConnect:
		if !s.dead {
			s.connected(cp.Res)
		}
	}
	s.atRest()
}

// atRest ends the socket, or has it leave, if that is due and no operation is in flight: the
// kernel uses no memory of the socket.
func (s *Socket) atRest() {
	switch {
	case s.ops > 0:
	case s.dead:
		s.free()
	case s.detaching():
		s.detached()
	}
}

// Backlog is the number of received bytes that the reader has not taken.
func (s *Socket) Backlog() int {
	s.core.assertOwner()
	return len(s.backlog)
}

// unfed says that there are bytes that the framer has not seen, or has not taken.
func (s *Socket) unfed() bool { return len(s.backlog) > 0 || s.part.whole() }

// deliver hands received bytes to the framer or link. p is valid only during the call.
func (s *Socket) deliver(p []byte) {
	s.touched, s.heard = s.core.now, s.core.now
	if s.framer != nil && s.paused == nil && len(s.backlog) == 0 {
		p = s.feed(p)
	}
	if len(p) == 0 || s.dead {
		s.listUnfed()
		return
	}
	s.keep(p)
	if s.link != nil {
		s.feedLink()
	}
}

// keep adds received bytes to the backlog. A framer gets them at the next visit.
func (s *Socket) keep(p []byte) {
	s.touched, s.heard = s.core.now, s.core.now
	s.backlog = append(s.backlog, p...)
	if s.link == nil && s.paused == nil {
		s.list() // the visit is over
	}
}

// Unread gives back bytes of the last Target that the framer does not take now: Feed gets them
// before the bytes that follow. In Filled only. The socket copies p.
func (s *Socket) Unread(p []byte) {
	s.core.assertOwner()
	if len(p) > 0 && !s.dead {
		s.keep(p)
	}
}

// feedBacklog gives the framer the backlog, and has it try the frame again at which it
// stopped.
func (s *Socket) feedBacklog() {
	all := s.backlog
	p := all[:min(len(all), ReceiveBytes)] // no more than a read brings
	s.backlog = nil
	rest := s.feed(p)
	if s.dead {
		return
	}
	if all = all[len(p)-len(rest):]; len(all) > 0 {
		s.backlog = all
	}
	s.listUnfed()
	if s.eof {
		s.endHalfClosed()
	}
}

// listUnfed puts the socket in line if its framer has left bytes, as the visit is over.
func (s *Socket) listUnfed() {
	if s.framer != nil && !s.dead && s.paused == nil && s.unfed() {
		s.list()
	}
}

// end is the end of the peer's stream. The socket is half-closed from then on.
func (s *Socket) end() {
	s.eof = true
	if s.link != nil {
		s.feedLink()
	} else {
		s.endHalfClosed()
	}
}

// endHalfClosed ends a half-closed socket, unless the framer has bytes of the peer still
// to see, or still has to answer.
func (s *Socket) endHalfClosed() {
	if s.dead || s.framer == nil || s.paused != nil || s.unfed() || s.building {
		return
	}
	stay := s.writing || s.framer.Pending(s)
	if h, ok := s.framer.(HalfCloser); ok {
		stay = h.HalfClosed(s)
	}
	switch {
	case !stay:
		s.Fault(ErrPeerClosed)
	case s.writing:
		s.core.owed = true // the end of a quiet write would not end the core's sleep
	}
}

// carry has f serve the socket from here on.
func (s *Socket) carry(f Framer) {
	s.framer, s.most = f, BacklogBytes
	s.placer, _ = f.(Placer)
	if shower, ok := f.(ReceiveShower); ok {
		s.view = shower.ReceiveView(s)
		s.show()
	}
	s.core.stats.Handlers++
	if s.link != nil {
		s.leaveLink(s.link) // it writes, which may end the socket: f gets Ended
	}
}

// uncarry detaches the framer, which gets no further call.
func (s *Socket) uncarry() Framer {
	f := s.framer
	if f != nil {
		s.framer, s.placer = nil, nil
		if s.view != nil {
			s.view.at.Store(0)
			s.view = nil
		}
		s.core.stats.Handlers--
	}
	return f
}

// Close ends the socket without a call of Framer.Ended. After ErrReset the peer sees a
// TCP reset.
func (s *Socket) Close(err error) {
	s.core.assertOwner()
	s.uncarry()
	s.Fault(err)
}

// EndWriting ends our direction of the stream: later writes fail, and bytes that the
// peer still sends are read.
func (s *Socket) EndWriting() {
	s.core.assertOwner()
	if s.sock.Valid() {
		s.core.drv.EndWriting(s.sock)
	}
}

// ErrReset ends a socket so that the peer sees a TCP reset.
var ErrReset = errors.New("loop: connection reset by us")

// Fault ends the socket, and reports err to its link or framer (Framer.Ended), once. It
// does nothing to a socket that has ended.
func (s *Socket) Fault(err error) {
	s.core.assertOwner()
	if s.dead {
		return
	}
	s.dead = true
	c := s.core
	if t := s.paused; s.Throttled() {
		s.leaveLine()
		t.notify()
	}
	s.backlog, s.call, s.unsent = nil, nil, nil
	s.dropPart()
	if s.sock.Valid() {
		if errors.Is(err, ErrReset) || s.writing && s.tx.lent {
			// With zero copy the kernel refers to the payload until the peer reads it, maybe never.
			c.drv.Reset(s.sock)
		} else {
			c.drv.Close(s.sock)
		}
	}
	if l := s.link; l != nil {
		s.link, l.sock, l.cause = nil, nil, err
		l.answer(reply{err: err})
	}
	if f := s.uncarry(); f != nil {
		f.Ended(s, err)
	}
	if s.detach != nil { // it has not left; in a task, as the present one may still use it
		left := s.detach.left
		s.detach = nil
		s.core.Post(&Task{Run: func(c *Core) { left(c, nil) }})
	}
	if s.ops == 0 {
		s.free()
	}
}

// free gives the slot back once no operation is in flight.
func (s *Socket) free() {
	if s.user == 0 {
		return
	}
	s.core.freeEntry(s.user)
	s.user = 0
	s.core.stats.Sockets--
}
