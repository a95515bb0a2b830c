package dataplane

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A live connection changes cores in two hops, as a closed one does. Between
// them the socket is brought to rest: no write in flight, no watch armed. What
// the kernel has received stays in the socket, what the core has received and
// not delivered travels along, so that no byte is lost or read twice. The
// socket object stays behind; the new core makes its own.

// departure is a socket that is coming to rest. Owner: its core.
type departure struct {
	h       *Handler
	to      *Core
	done    func()
	holdOut bool // what Handler.holdOut was
	still   bool // it does not write any more, and ends reading
}

// luggage is what a socket takes along.
type luggage struct {
	fd      int
	rx      frameReader // its target is in partial
	partial []byte      // head and rest of the frame under way, as far as they are there
	backlog []byte      // received, not delivered
	eof     bool
	leaving bool // it prefers to read by readiness
	held    bool // stopped by a break point
	waited  bool // for units of a throttle
	copies  bool
	holdOut bool
	touched time.Duration
}

// Migrate brings the handler to core to with the socket that it has, open or
// not: nothing is lost, and the peer does not notice. As in Move, the owner
// hears Moving on the old core and Moved, with Migrated, on the new one, and
// done runs there behind it.
//
// The socket leaves when its last write has ended. A peer that does not read
// can delay that; an event that is posted meanwhile, and a socket that faults,
// end the wait: the handler then arrives in delay, and its owner has heard
// Faulted. The same happens if the new core cannot take the socket. From the call
// on the handler counts at the new core, too: that is not gone before it arrives.
func (h *Handler) Migrate(to *Core, done func()) {
	to.load.Add(1)
	h.post(2, func(h *Handler, c *Core) {
		switch s := h.sock; {
		case to == c:
			c.load.Add(-1)
			h.in++
			if done != nil {
				done()
			}
		case s == nil:
			h.emigrate(c, to, nil, done)
		default:
			waited := len(h.early) > 0
			s.depart(&departure{h: h, to: to, done: done, holdOut: h.holdOut})
			if waited && h.core.Load() == c { // else it has left at once, and is not ours any more
				h.hurry()
			}
		}
	})
}

// depart lets the socket come to rest: it does not begin to send, and when it
// has nothing in flight it ends receiving.
func (s *socket) depart(d *departure) {
	s.going = d
	d.h.holdOut = true
	if !s.writing {
		s.unwatch()
		return
	}
	// It reads until the write has ended: the peer may not read what we write
	// before we read what it does.
	if !s.tx.owed {
		// The end of a quiet write would not end the core's sleep.
		s.tx.owed = true
		s.core.owing++
	}
}

// unwatch ends the reading of a departing socket.
func (s *socket) unwatch() {
	s.going.still = true
	switch {
	case s.receiving:
		if !s.leaving && !s.ebbing {
			s.core.drv.Cancel(s.recvOp)
		}
	case s.ops > 0:
		s.core.drv.Cancel(s.readyOp) // ignored if there is none
	}
	if s.ops == 0 {
		s.atRest()
	}
}

// hurry ends the wait of a socket that is coming to rest: an event follows,
// and whatever it is, it is for a connection without this socket.
func (h *Handler) hurry() {
	if s := h.sock; s != nil && s.going != nil {
		s.fault(ErrLinkClosed)
	}
}

// settling says that the socket is not to be watched again on this core.
func (s *socket) settling() bool { return s.going != nil && s.going.still }

// stay is called when the departing socket has faulted: the handler goes
// without it, in a task of its own, as the one that runs may still use it.
func (s *socket) stay() {
	d := s.going
	s.going = nil
	s.core.post(&task{run: func(c *Core) { d.h.emigrate(c, d.to, nil, d.done) }})
}

// embark packs the socket, which is at rest, and sends it on its way.
func (s *socket) embark() {
	c, d := s.core, s.going
	held := s.paused == &c.held
	if s.paused != nil && !held && !s.paused.leave(&s.resume) {
		return // its turn has come: unpause comes back here
	}
	fd, err := c.drv.Detach(s.sock)
	if err != nil {
		s.fault(fmt.Errorf("leave core %d: %w", c.id, err))
		return
	}
	l := &luggage{
		fd: fd, rx: s.rx, backlog: s.backlog[s.taken:], eof: s.eof, leaving: s.leaving, held: held,
		waited: s.paused != nil && !held, copies: s.tx.copies, holdOut: d.holdOut, touched: s.touched,
	}
	if b := s.rx.target; b != nil {
		l.partial = bytes.Clone(b.b[s.rx.at-s.rx.headLen : s.rx.at+s.rx.fill])
		c.pool.put(b)
		l.rx.target = nil
	}
	c.timers.stop(&s.idle)
	s.dead, s.going, s.handler, s.paused = true, nil, nil, nil
	s.rx, s.backlog = frameReader{}, nil
	c.stats.Handlers--
	d.h.sock = nil
	s.free()
	d.h.emigrate(c, d.to, l, d.done)
}

// emigrate is the first hop. l is nil if there is no socket.
func (h *Handler) emigrate(c, to *Core, l *luggage, done func()) {
	if h.state != StateDrop {
		h.cfg.Owner.Moving(h, to)
	}
	h.hop(c, to, &task{run: func(c2 *Core) { h.immigrate(c2, c, l, done) }})
}

// immigrate is the second hop.
func (h *Handler) immigrate(c, from *Core, l *luggage, done func()) {
	h.in++
	c.stats.MovedHere++
	if h.state != StateDrop {
		h.cfg.Owner.Moved(h, from, Arrival{Migrated: true})
	}
	if l != nil {
		h.unpack(c, l)
	}
	h.takeInbox()
	h.wake(c)
	if done != nil {
		done()
	}
	if next := h.nextEarly(); next != nil {
		next.arrive(c)
	}
}

// unpack goes on with the socket on its new core.
func (h *Handler) unpack(c *Core, l *luggage) {
	if err := h.adopt(c, l); err != nil {
		l.rx.taken.giveBack()
		l.rx.dec.Wipe()
		h.enc.Wipe()
		h.enc, h.holdOut, h.state = nil, false, StateDelay
		h.takeInbox()
		h.out++
		h.cfg.Owner.Faulted(h.out, err, h.mirror())
		return
	}
	s := h.sock
	h.holdOut = l.holdOut
	if l.held {
		s.paused = &c.held
	} else {
		s.retrying = l.waited
		s.feedBacklog()
		s.retrying = false
	}
	if !s.dead {
		s.rearm()
	}
}

// adopt makes the socket that l describes. On an error the descriptor is
// closed.
func (h *Handler) adopt(c *Core, l *luggage) error {
	if c.closed.Load() {
		_ = unix.Close(l.fd)
		return ErrStopped
	}
	var b *buffer
	var err error
	if l.partial != nil {
		if b, err = c.pool.get(l.rx.at + l.rx.size); err != nil {
			_ = unix.Close(l.fd)
			return fmt.Errorf("enter core %d: %w", c.id, err)
		}
		copy(b.b[l.rx.at-l.rx.headLen:], l.partial)
	}
	us, err := c.drv.Adopt(l.fd)
	if err != nil {
		if b != nil {
			c.pool.put(b)
		}
		_ = unix.Close(l.fd)
		return fmt.Errorf("enter core %d: %w", c.id, err)
	}
	s := newSocket(c)
	s.sock, s.handler, s.rx, s.backlog = us, h, l.rx, l.backlog
	s.rx.target = b
	s.eof, s.leaving, s.tx.copies, s.touched = l.eof, l.leaving, l.copies, l.touched
	h.sock = s
	c.stats.Handlers++
	if o := &h.options; o.IdleAfter > 0 || o.KeepaliveEvery > 0 {
		s.arming(h, c.now) // it finds out what is due
	}
	return nil
}

// rearm watches the socket of a handler that has arrived.
func (s *socket) rearm() {
	switch {
	case s.eof:
	case s.core.receive == ReceiveBuffers && !s.leaving && s.held() < backlogMax:
		s.armReceive()
	case s.core.receive == ReceiveBuffers && !s.leaving:
	default:
		s.armReady()
	}
}
