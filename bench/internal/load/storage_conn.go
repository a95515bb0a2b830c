package load

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
)

// slot is one request that a connection has open.
type slot struct {
	number     int    // of all slots
	at         int64  // the place in a file that it is about
	generation uint64 // of its last write
	issued     time.Duration
	busy, warm bool
	round      uint64 // makes the ids of its requests differ
}

// slotConn is one connection.
type slotConn struct {
	*socket
	s     *Storage
	wire  dialect
	slots []slot
	out   []byte // to be sent
	sent  int    // of it
	in    []byte // of incomplete answers
	now   *slot  // its data is being made
	fill  func(p []byte)
}

// add opens connection number i.
func (s *Storage) add(ctx context.Context, i int, nonce uint32) error {
	at, enc, dec, err := s.dial(ctx, s.opt.Options, nonce)
	if err != nil {
		return err
	}
	c := &slotConn{socket: at, s: s, slots: make([]slot, s.opt.Depth)}
	c.fill = func(p []byte) { blocks.Fill(p, c.now.at, c.now.generation) }
	for j := range c.slots {
		c.slots[j].number = i*s.opt.Depth + j
	}
	c.wire = &framed{enc: enc, frames: frames{dec: dec}}
	if s.opt.Raw {
		c.wire = rawDialect{s.opt.File}
	}
	s.conns = append(s.conns, c)
	return nil
}

// Fill implements Traffic.
func (s *Storage) Fill() error {
	s.begin(s.opt.Conns * s.opt.Depth) // slots
	for _, c := range s.conns {
		now := s.meter.now()
		for i := range c.slots {
			c.slots[i].warm = false
			if err := c.issue(&c.slots[i], i, now); err != nil {
				return err
			}
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
	return nil
}

// Drain implements Traffic.
func (s *Storage) Drain() error {
	s.stopping = true
	for s.open > 0 {
		if err := s.Turn(); err != nil {
			return err
		}
	}
	return nil
}

// Turn implements Traffic.
func (s *Storage) Turn() error { return s.wait(pollEach) }

// issue queues the next request of a slot.
func (c *slotConn) issue(t *slot, i int, now time.Duration) (err error) {
	t.busy, t.issued = true, now
	t.round++
	c.s.open++
	r := c.s.ask(t)
	data := 0
	if r.Kind == blocks.Write {
		data = r.Len
	}
	c.now = t
	c.out, err = c.wire.request(c.out, t.round<<16|uint64(i), r, data, c.fill)
	return err
}

// answer takes one.
func (c *slotConn) answer(a answer, now time.Duration) error {
	s, i := c.s, int(a.id&0xffff)
	if i >= len(c.slots) || !c.slots[i].busy || c.slots[i].round != a.id>>16 {
		return fmt.Errorf("%w: to a request %#x that is not open", ErrReply, a.id)
	}
	t := &c.slots[i]
	if err := s.check(t, a.data); err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	t.busy = false
	s.answered(now, t.issued)
	if !t.warm {
		t.warm = true
		s.cold--
	}
	if s.stopping {
		return nil
	}
	return c.issue(t, i, now)
}

// happened reads once and continues to write.
func (s *Storage) happened(index int, events uint32) error {
	c := s.conns[index]
	if events&^unix.EPOLLOUT != 0 {
		if room := cap(c.in) - len(c.in); room < scratchSize/2 {
			c.in = append(make([]byte, 0, 2*cap(c.in)+scratchSize), c.in...)
		}
		n, err := s.receive(c.socket, c.in[len(c.in):cap(c.in)])
		if err != nil {
			return err
		}
		c.in = c.in[:len(c.in)+n]
		if err := c.cut(); err != nil {
			return err
		}
	}
	return c.flush()
}

// cut takes the complete answers out of the received bytes.
func (c *slotConn) cut() error {
	now, done := c.s.meter.now(), 0
	for {
		a, err := c.wire.answer(c.in[done:])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
		if a.size == 0 {
			break
		}
		done += a.size
		if a.other {
			continue
		}
		if a.failed {
			return fmt.Errorf("%w: the server says %q", ErrReply, a.data)
		}
		if err := c.answer(a, now); err != nil {
			return err
		}
	}
	c.in = c.in[:copy(c.in, c.in[done:])]
	return nil
}

// flush sends queued requests, and watches for room if some are left.
func (c *slotConn) flush() error {
	if c.sent < len(c.out) {
		n, err := unix.Write(c.fd, c.out[c.sent:])
		switch {
		case err == nil:
			c.sent += n
		case err != unix.EAGAIN && err != unix.EINTR:
			return os.NewSyscallError("write", err)
		}
		if c.sent == len(c.out) {
			c.out, c.sent = c.out[:0], 0
		} else if c.sent > cap(c.out)/2 {
			c.out, c.sent = c.out[:copy(c.out, c.out[c.sent:])], 0
		}
	}
	return c.s.watch(c.socket, len(c.out) > 0)
}
