package loop

import (
	"fmt"
	"slices"
	"time"
)

// A live connection changes cores in two hops. Between them the socket is at rest: no
// write in flight, no watch armed. Bytes that the kernel has received stay in the
// socket; bytes that the core has received and the framer has not taken travel along,
// so that no byte is lost or read twice. The new core makes a Socket of its own. The
// framer takes its unfinished frames along itself.

// detachment is a socket that is coming to rest. Owner: its core.
type detachment struct {
	left  func(c *Core, d *Detached)
	still bool // it does not write any more, and ends reading
}

// Detached is a socket between two cores. Core.Attach takes it over, or Close
// ends it.
type Detached struct {
	stream
	fd      int
	closeFD func(fd int)  // Config.CloseFD
	mode    ReceiveMode   // of its core, which the way belongs to
	held    bool          // by Hold
	waited  bool          // for units of a throttle
	since   time.Duration // start of that wait
	copies  bool
	eof     bool
}

// stream is the part of a socket that goes along to another core. Owner: the core that has it.
type stream struct {
	way     way
	backlog []byte        // received, not taken yet; comes after part
	touched time.Duration // last bytes either way
	heard   time.Duration // last bytes received
	written uint64        // bytes of the writes that have ended
	taken   uint64        // bytes that the peer's kernel had at the last look
}

// Detach brings the socket to rest and takes it off its core: no further write
// begins but that of a Gather under way, and when none is in flight reading ends. A peer
// that does not read can delay that; Fault ends the wait. left is called once on the core, at once or
// later: with the socket, or with nil if it has ended instead. Then the framer
// has heard of that before.
func (s *Socket) Detach(left func(c *Core, d *Detached)) {
	s.core.assertOwner()
	s.detach = &detachment{left: left}
	if !s.writing && !s.building {
		s.unwatch()
		return
	}
	// It reads until the write in flight, or that of this Gather, has ended: the peer may take
	// our bytes only after we have read its own.
	s.core.owed = true // the end of a quiet write would not end the core's sleep
}

// Leaving says that Detach was called.
func (s *Socket) Leaving() bool {
	s.core.assertOwner()
	return s.detach != nil
}

// unwatch cancels the watch or the receive of a socket that is about to leave.
func (s *Socket) unwatch() {
	s.detach.still = true
	if w := &s.way; w.receiving && !w.ready || w.watching && w.ready { // else it is being cancelled
		s.core.drv.Cancel(w.op)
	}
	if s.feeding { // the bytes that Feed leaves go along
		s.core.Post(&Task{Run: func(*Core) { s.atRest() }})
	} else {
		s.atRest()
	}
}

// detaching says that the socket must not be armed again on this core.
func (s *Socket) detaching() bool { return s.detach != nil && s.detach.still }

// detached takes the socket, which is at rest, off its core.
func (s *Socket) detached() {
	c, left := s.core, s.detach.left
	held, waited := s.paused == &c.held, s.Throttled()
	if t := s.paused; waited {
		s.leaveLine()
		defer t.notify()
	}
	fd, err := c.drv.Detach(s.sock)
	if err != nil {
		s.Fault(fmt.Errorf("leave core %d: %w", c.id, err))
		return
	}
	d := &Detached{
		stream: s.stream, fd: fd, closeFD: c.cfg.CloseFD, mode: c.receive, held: held, waited: waited, since: s.pausedAt,
		copies: s.tx.copies, eof: s.eof,
	}
	if r := s.part; r.begun() {
		d.backlog = slices.Concat(r.buf.b[:r.fill], s.backlog)
	}
	s.dead, s.detach, s.paused, s.backlog = true, nil, nil, nil
	s.dropPart()
	s.uncarry()
	s.free()
	left(c, d)
}

// close ends a socket that goes to no core.
func (d *Detached) close() { d.closeFD(d.fd) }

// Attach makes a socket of d on this core, with f as its framer. The socket is idle until
// Continue. On an error the descriptor is closed; ErrStopped says that the core is gone.
// On the core, or after its end.
func (c *Core) Attach(d *Detached, f Framer) (*Socket, error) {
	c.assertOwner()
	if c.closed.Load() {
		d.close()
		return nil, ErrStopped
	}
	us, err := c.drv.Adopt(d.fd)
	if err != nil {
		d.close()
		return nil, fmt.Errorf("enter core %d: %w", c.id, err)
	}
	s := newSocket(c)
	if d.mode != c.receive || c.receive == ReceiveReady {
		d.way = s.way // it has to find its way anew
	}
	s.sock, s.stream, s.tx.copies, s.eof = us, d.stream, d.copies, d.eof
	s.retrying, s.pausedAt = d.waited, d.since
	if d.held {
		s.paused, s.pausedAt = &c.held, c.now
	}
	s.carry(f)
	return s, nil
}

// Continue starts a socket that Attach has made: Feed gets the bytes that had come
// before, unless the socket is held.
func (s *Socket) Continue() {
	s.core.assertOwner()
	if s.paused == nil {
		s.feedBacklog()
	}
	s.retrying = false
	if !s.dead && !s.eof {
		s.arm()
	}
}
