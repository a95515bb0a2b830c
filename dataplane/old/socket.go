package dataplane

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	// pieceBytes is how much of a large segment one read takes: large enough
	// to be cheap, small enough that its crc runs over cached bytes.
	pieceBytes = 256 << 10
	// readsPerVisit bounds the reads of one visit, so that a connection with
	// much to say does not starve the others.
	readsPerVisit = 2
	// backlogMax is how much a socket holds back for a reader that does not
	// take it, before it stops reading.
	backlogMax = 256 << 10
)

// errPeerClosed is the fault of a session whose peer hung up.
var errPeerClosed = fmt.Errorf("the peer closed the connection: %w", io.EOF)

// socket is one TCP connection on its core. While a handshake runs it serves
// a Link, then the frames of a Handler. All of it is the core's own.
type socket struct {
	core *Core
	sock uring.Socket
	user uint64 // names it in completions
	ops  int    // operations in flight; the slot is free when there is none
	dead bool   // faulted or closed: nothing more is read or delivered

	link    *Link
	handler *Handler

	// Receiving.
	receiving bool     // a multishot receive is armed
	leaving   bool     // it was asked to end, to read by readiness instead
	ebbing    bool     // or because too much is held back already
	recvOp    uring.Op // that receive
	readyOp   uring.Op // the watch for readiness
	listed    bool     // in core.readable
	ending    bool     // an edge said that the stream ends or fails
	eof       bool     // the peer has ended the stream
	stopped   bool     // did not read on because it was full
	paused    *Throttle
	retrying  bool   // the first frame to come was paused before
	vain      int    // how often its turn came in vain
	resume    task   // wakes it when units return
	backlog   []byte // received, not taken yet
	taken     int    // of backlog
	rx        frameReader

	// A handshake's read under way.
	want    []byte
	wantGot int

	// Sending: one write in flight.
	writing bool
	tx      transmit

	touched time.Duration // last bytes either way
	idle    timer

	going *departure // the socket is about to go to another core
}

// newSocket makes a socket with a slot of its own. The caller sets sock.
func newSocket(c *Core) *socket {
	s := &socket{core: c, touched: c.now}
	s.resume.run = s.unpause
	e, user := c.slot()
	e.sock, s.user = s, user
	c.stats.Sockets++
	return s
}

// arm starts receiving.
func (s *socket) arm() {
	if s.core.receive == ReceiveBuffers {
		s.armReceive()
	} else {
		s.armReady()
	}
}

func (s *socket) armReceive() {
	op, err := s.core.drv.Receive(s.sock, s.user)
	if err != nil {
		s.fault(fmt.Errorf("receive: %w", err))
		return
	}
	s.ops++
	s.recvOp, s.receiving = op, true
}

func (s *socket) armReady() {
	op, err := s.core.drv.Ready(s.sock, s.user)
	if err != nil {
		s.fault(fmt.Errorf("watch: %w", err))
		return
	}
	s.ops++
	s.readyOp = op
}

// preferReady leaves the receive ring for good: large segments are read into
// their place. What the ring has already received still comes, in order.
func (s *socket) preferReady() {
	if s.receiving && !s.leaving {
		s.leaving = true
		s.core.drv.Cancel(s.recvOp)
	}
}

// complete handles one completion of this socket.
func (s *socket) complete(cp *uring.Completion) {
	if cp.Flags&uring.More == 0 {
		s.ops--
	}
	switch cp.Kind {
	case uring.KindReady:
		s.ready(cp)
	case uring.KindReceive:
		s.received(cp)
	case uring.KindSend:
		s.sent(cp.Res, cp.Flags, false)
	case uring.KindConnect:
		if !s.dead {
			s.connected(cp.Res)
		}
	}
	if s.ops == 0 {
		s.atRest()
	}
}

// atRest is called when no operation is in flight: the kernel has let go.
func (s *socket) atRest() {
	switch {
	case s.dead:
		s.free()
	case s.settling():
		s.embark()
	}
}

// ready is a readiness edge.
func (s *socket) ready(cp *uring.Completion) {
	if s.dead {
		return
	}
	if errno := cp.Errno(); errno != 0 && errno != unix.ECANCELED {
		s.fault(fmt.Errorf("watch: %w", errno))
		return
	}
	if cp.Flags&uring.More == 0 {
		if s.settling() {
			return // what has come is read on the other core
		}
		s.core.stats.Rearms++
		s.armReady()
	}
	// A listed socket is served in its turn; serving it for its edge too
	// would take two turns' worth.
	if cp.Res&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0 {
		s.ending = true
	}
	if !s.listed && !s.dead {
		s.read()
	}
}

// received is a slice of the ring's buffers.
func (s *socket) received(cp *uring.Completion) {
	if cp.Buf != 0 {
		defer s.core.drv.Release(cp.Buf)
	}
	if s.dead {
		return
	}
	switch errno := cp.Errno(); {
	case cp.Res > 0:
		s.core.stats.BytesIn += uint64(cp.Res)
		s.deliver(cp.Data)
	case cp.Res == 0:
		s.end()
	case errno != unix.ENOBUFS && errno != unix.ECANCELED && errno != unix.EAGAIN:
		s.fault(fmt.Errorf("receive: %w", errno))
	}
	if cp.Flags&uring.More != 0 {
		if s.held() >= backlogMax && !s.ebbing {
			s.ebbing = true
			s.core.drv.Cancel(s.recvOp)
		}
		return
	}
	s.receiving, s.ebbing = false, false
	switch {
	case s.dead || s.eof || s.settling():
	case s.leaving:
		s.armReady()
	case s.held() < backlogMax:
		s.core.stats.Rearms++
		s.armReceive()
	}
}

// read takes what the kernel holds, up to the budget of one visit.
func (s *socket) read() {
	for range readsPerVisit {
		if s.dead || s.eof {
			return
		}
		if s.full() {
			s.stopped = true
			return
		}
		if done := s.readOnce(); done {
			return
		}
	}
	if !s.dead && !s.eof {
		s.list()
	}
}

// list has the socket read again in the next turn.
func (s *socket) list() {
	if !s.listed {
		s.listed = true
		s.core.readable = append(s.core.readable, s)
	}
}

// full says that whoever reads from the socket has to take something first.
func (s *socket) full() bool {
	return s.paused != nil || s.held() >= backlogMax
}

// held is how many bytes wait for a reader.
func (s *socket) held() int { return len(s.backlog) - s.taken }

// readOnce does one read and delivers it. It returns true if the kernel has
// no more.
func (s *socket) readOnce() bool {
	c := s.core
	hot := c.hot.Bytes()
	rest := s.rx.rest()
	var n, into int
	var errno unix.Errno
	switch {
	case len(rest) == 0:
		n, errno = c.drv.Recv(s.sock, hot)
	case len(rest) <= pieceBytes:
		into = len(rest)
		n, errno = c.drv.Recvv(s.sock, rest, hot)
	default:
		into = pieceBytes
		n, errno = c.drv.Recv(s.sock, rest[:pieceBytes])
	}
	switch {
	case errno == unix.EAGAIN:
		return true
	case errno == unix.EINTR:
		return false
	case errno != 0:
		s.fault(fmt.Errorf("read: %w", errno))
		return true
	case n == 0:
		s.end()
		return true
	}
	s.touched = c.now
	c.stats.BytesIn += uint64(n)
	c.stats.Reads++
	room := into
	if into <= pieceBytes && into == len(rest) {
		room += len(hot)
	}
	if into > 0 {
		s.rx.filled(s, min(n, into))
	}
	if n > into && !s.dead {
		s.deliver(hot[:n-into])
	}
	// A short read means that the kernel has no more, unless the end of the
	// stream came with the last bytes: there is no further edge for it.
	return n < room && !s.ending
}

// deliver hands received bytes to whoever owns the socket. p is valid only
// during the call.
func (s *socket) deliver(p []byte) {
	s.touched = s.core.now
	if s.handler != nil && s.paused == nil && len(s.backlog) == 0 {
		p = s.rx.feed(s, p)
	}
	if len(p) == 0 || s.dead {
		return
	}
	s.backlog = append(s.backlog, p...)
	if s.link != nil {
		s.feedLink()
	}
}

// consumeBacklog drops n bytes that were taken.
func (s *socket) consumeBacklog(n int) {
	s.taken += n
	if s.taken == len(s.backlog) {
		s.backlog, s.taken = nil, 0
	}
}

// feedBacklog gives the frame reader what was held back, and whatever frame
// it paused on.
func (s *socket) feedBacklog() {
	p := s.backlog[s.taken:]
	s.backlog, s.taken = nil, 0
	rest := s.rx.feed(s, p)
	if s.dead {
		return
	}
	s.backlog = rest
	if s.eof && s.paused == nil {
		s.fault(errPeerClosed)
	}
}

// pause stops reading until t has room for n units.
func (s *socket) pause(t *Throttle, n int64) {
	s.paused = t
	if s.retrying {
		s.vain++
	} else {
		s.core.stats.Paused++
	}
	t.wait(waiter{s.core, &s.resume}, n, s.retrying, s.vain)
}

// unpause tries again, and lets the next in line try if that went well.
func (s *socket) unpause(*Core) {
	t := s.paused
	if t == nil {
		return
	}
	s.paused = nil
	got := true // its share, or it needs none any more
	if !s.dead {
		s.alive()
		s.retrying = true
		s.feedBacklog()
		got = !s.retrying
		s.retrying = false
		s.resumeReading()
	}
	if got || s.paused != t {
		t.notify()
	}
	if s.going != nil && s.ops == 0 {
		s.atRest()
	}
}

// resumeReading goes on after the reader took something.
func (s *socket) resumeReading() {
	if s.dead || s.eof || s.settling() || s.full() {
		return
	}
	if s.core.receive == ReceiveBuffers && !s.leaving {
		if !s.receiving {
			s.armReceive()
		}
		return
	}
	if s.stopped && !s.receiving {
		s.stopped = false
		s.list() // the edge has passed while we did not read
	}
}

// end is the end of the peer's stream.
func (s *socket) end() {
	s.eof = true
	switch {
	case s.link != nil:
		s.feedLink()
	case s.handler != nil && s.paused == nil && len(s.backlog) == 0:
		s.fault(errPeerClosed)
	}
}

// attach gives the socket to a handler. From here on it carries frames.
func (s *socket) attach(h *Handler, dec *frame.Decoder) {
	if s.link != nil {
		s.link.sock = nil
		s.link = nil
	}
	s.handler = h
	s.rx.dec = dec
	s.feedBacklog()
	s.resumeReading()
}

// fault ends the socket. Whoever owns it is told, once.
func (s *socket) fault(err error) {
	if s.dead {
		return
	}
	s.dead = true
	c := s.core
	c.timers.stop(&s.idle)
	if t := s.paused; t != nil && !mutant.StayInLine && t.leave(&s.resume) {
		s.paused = nil
	}
	s.rx.reset(s)
	s.backlog, s.want = nil, nil
	if s.sock.Valid() {
		if errors.Is(err, ErrReset) || s.writing && s.tx.lent {
			// What the kernel reads from the payload itself it would keep
			// until a peer takes it that may never do so.
			s.resetOnClose()
		}
		c.drv.Close(s.sock)
	}
	if l := s.link; l != nil {
		s.link, l.sock = nil, nil
		l.answer(err)
	}
	if h := s.handler; h != nil {
		s.handler = nil
		h.lost(s, err)
	}
	if s.going != nil {
		s.stay()
	}
	if s.ops == 0 {
		s.free()
	}
}

// free recycles the slot once the kernel has let go of everything.
func (s *socket) free() {
	if s.user == 0 {
		return
	}
	s.core.freeEntry(s.user)
	s.user = 0
	s.core.stats.Sockets--
}

// serveReadable visits the sockets that used up their budget, once each.
func (c *Core) serveReadable() {
	if len(c.readable) == 0 {
		return
	}
	c.reading, c.readable = c.readable, c.reading[:0]
	for i, s := range c.reading {
		c.reading[i] = nil
		s.listed = false
		if !s.dead {
			s.read()
		}
	}
}
