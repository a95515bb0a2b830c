package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// work is what the requests of slots ask for.
type work interface {
	// ask decides the next request of a slot: its type, its front until the next call, and
	// how much data it has. It is false if the slot has none.
	ask(t *slot) (typ uint16, front []byte, data int, ok bool)
	// data makes the data of the request that was asked for last.
	data(p []byte, t *slot)
	// check verifies the answer to it.
	check(t *slot, data []byte) error
}

// slots is a set of connections with requests that each have a slot, so that answers may
// come in any order.
type slots struct {
	opt    Options
	work   work
	conns  []*slotConn
	epoll  int
	events [eventsMax]unix.EpollEvent
	meter  meter

	open      int
	cold      int // slots without an answer in this slice
	stopping  bool
	lastReply time.Duration
}

// slot is one request that a connection has open.
type slot struct {
	number     int    // of all slots
	at         int64  // the place in a file that it is about
	generation uint64 // of what it writes
	issued     time.Duration
	busy, warm bool
	round      uint64 // makes the ids of its requests differ
}

// slotConn is one connection.
type slotConn struct {
	s      *slots
	fd     int
	index  int
	wire   dialect
	slots  []slot
	out    []byte // what is to be sent
	sent   int    // of it
	in     []byte // what has come of answers that are not whole
	blocks bool   // waits for room in the socket (EPOLLOUT is armed)
	now    *slot  // whose data is being made
	fill   func(p []byte)
}

// openSlots connects. dialectOf says how the two sides of a connection speak.
func openSlots(ctx context.Context, o Options, w work, dialectOf func(framed) dialect) (*slots, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	s := &slots{opt: o, work: w, epoll: epoll, meter: newMeter(o.PID)}
	nonce := rand.Uint32()
	for i := range o.Conns {
		if err := s.dial(ctx, i, nonce+uint32(i), dialectOf); err != nil {
			s.Close()
			return nil, fmt.Errorf("connection %d to %s: %w", i, o.Addr, err)
		}
	}
	runtime.GC() // what the handshakes left behind, before anything is measured
	return s, nil
}

func (s *slots) dial(ctx context.Context, i int, nonce uint32, dialectOf func(framed) dialect) error {
	fd, enc, dec, err := connect(ctx, s.opt, nonce)
	if err != nil {
		return err
	}
	c := &slotConn{s: s, fd: fd, index: i, slots: make([]slot, s.opt.Depth)}
	c.fill = func(p []byte) { s.work.data(p, c.now) }
	for j := range c.slots {
		c.slots[j].number = i*s.opt.Depth + j
	}
	c.wire = dialectOf(framed{enc: enc, dec: dec})
	s.conns = append(s.conns, c)
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &ev))
}

// Close closes all connections.
func (s *slots) Close() {
	for _, c := range s.conns {
		_ = unix.Close(c.fd)
	}
	s.conns = nil
	_ = unix.Close(s.epoll)
}

// all is how many requests are open.
func (s *slots) all() uint64 { return uint64(s.opt.Conns * s.opt.Depth) }

// exhaust makes requests until no slot has one, and waits for the answers.
func (s *slots) exhaust() error {
	if err := s.fill(); err != nil {
		return err
	}
	for s.open > 0 {
		if err := s.turn(); err != nil {
			return err
		}
	}
	return nil
}

// fill implements traffic.
func (s *slots) fill() error {
	s.stopping, s.cold, s.lastReply = false, s.opt.Conns*s.opt.Depth, s.meter.now()
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

// warm implements traffic.
func (s *slots) warm() bool { return s.cold == 0 }

// drain implements traffic.
func (s *slots) drain() error {
	s.stopping = true
	for s.open > 0 {
		if err := s.turn(); err != nil {
			return err
		}
	}
	return nil
}

// turn implements traffic.
func (s *slots) turn() error {
	n, err := awaitEvents(s.epoll, s.events[:], pollEach)
	if err == nil && n == 0 {
		err = stalled(s.open, s.meter.now()-s.lastReply)
	}
	if err != nil {
		return err
	}
	for _, ev := range s.events[:n] {
		if err := s.conns[ev.Fd].handle(ev.Events); err != nil {
			return fmt.Errorf("connection %d: %w", ev.Fd, err)
		}
	}
	return nil
}

// issue queues the next request of a slot.
func (c *slotConn) issue(t *slot, i int, now time.Duration) error {
	typ, front, data, ok := c.s.work.ask(t)
	if !ok {
		return nil
	}
	t.busy, t.issued = true, now
	t.round++
	c.s.open++
	c.now = t
	var err error
	c.out, err = c.wire.request(c.out, t.round<<16|uint64(i), typ, front, data, c.fill)
	return err
}

// answer takes one.
func (c *slotConn) answer(a answer, now time.Duration) error {
	s, i := c.s, int(a.id&0xffff)
	if i >= len(c.slots) || !c.slots[i].busy || c.slots[i].round != a.id>>16 {
		return fmt.Errorf("%w: to a request %#x that is not open", ErrReply, a.id)
	}
	t := &c.slots[i]
	if err := s.work.check(t, a.data); err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	t.busy = false
	s.open--
	s.lastReply = now
	s.meter.answered(now - t.issued)
	if !t.warm {
		t.warm = true
		s.cold--
	}
	if s.stopping {
		return nil
	}
	return c.issue(t, i, now)
}

// handle reads once and writes what became possible.
func (c *slotConn) handle(events uint32) error {
	if events&^unix.EPOLLOUT != 0 {
		if room := cap(c.in) - len(c.in); room < scratchSize/2 {
			c.in = append(make([]byte, 0, 2*cap(c.in)+scratchSize), c.in...)
		}
		n, err := receive(c.fd, c.in[len(c.in):cap(c.in)])
		if err != nil {
			return err
		}
		c.s.meter.received(n)
		c.in = c.in[:len(c.in)+n]
		if err := c.cut(); err != nil {
			return err
		}
	}
	return c.flush()
}

// cut takes the whole answers out of what has come.
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

// flush sends what is queued and watches for room if that was not all.
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
	return watch(c.s.epoll, c.fd, c.index, &c.blocks, len(c.out) > 0)
}
