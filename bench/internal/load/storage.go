package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/cmd/shared/procstat"
)

// verifyEach is how many acknowledged writes are read back behind each slice.
const verifyEach = 64

// StorageOptions say what requests a Storage makes.
type StorageOptions struct {
	Options             // Size is that of a request in bytes, whole blocks; 0 for a ping
	Kind    blocks.Kind `json:"kind"`
	Flags   uint8       `json:"flags"` // of package blocks
	Path    string      `json:"path"`  // of the file
	File    int64       `json:"file"`  // its size
}

// Validate reports everything that is wrong with o.
func (o StorageOptions) Validate() error {
	size := o.Size
	if o.Kind == blocks.Ping {
		o.Options.Size = 1
	}
	errs := []error{o.Options.Validate()}
	if o.Secure || o.Msgr1 {
		errs = append(errs, errors.New("storage is measured in crc mode of msgr2"))
	}
	if o.Kind != blocks.Ping && o.Conns > 0 && o.Depth > 0 && (size%blocks.Size != 0 || size > blocks.MaxLen || o.File/int64(o.Conns*o.Depth) < int64(size)) {
		errs = append(errs, fmt.Errorf("requests of %d bytes: want blocks of %d, %d at most, and a file that has room for all that are open", size, blocks.Size, blocks.MaxLen))
	}
	return errors.Join(errs...)
}

// Storage is a set of connections that read or write blocks of a file. Each request
// under way has a part of the file for itself, and takes a random place in it: answers
// may come in any order.
type Storage struct {
	opt        StorageOptions
	conns      []*storageConn
	epoll      int
	events     [eventsMax]unix.EpollEvent
	file       *os.File // what was written is read back from it
	rng        *rand.Rand
	generation uint64
	part       int64 // bytes of the file for each slot

	open      int
	cold      int // slots without an answer in this slice
	stopping  bool
	lastReply time.Duration
	meter     meter
	written   [verifyEach]write // acknowledged in this slice, a ring
	writes    int
	check     []byte
}

// slot is one request that a connection has open.
type slot struct {
	number     int // of all slots
	off        int64
	generation uint64
	issued     time.Duration
	busy, warm bool
	round      uint64 // makes the ids of its requests differ
}

// write is one that was acknowledged.
type write struct {
	off        int64
	generation uint64
}

// storageConn is one connection.
type storageConn struct {
	s      *Storage
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

// OpenStorage connects and, unless o.Raw, runs the handshake on every connection.
func OpenStorage(ctx context.Context, o StorageOptions) (*Storage, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	base := time.Now()
	s := &Storage{
		opt: o, epoll: epoll, rng: rand.New(rand.NewPCG(rand.Uint64(), 2)), generation: rand.Uint64() >> 24,
		part: o.File / int64(o.Conns*o.Depth) / blocks.Size * blocks.Size, check: make([]byte, o.Size),
	}
	s.meter = meter{
		now:     func() time.Duration { return time.Since(base) },
		server:  func() (time.Duration, error) { return procstat.ReadCPU(o.PID) },
		client:  func() (time.Duration, error) { return procstat.ReadCPU(0) },
		latency: latency.New(),
	}
	if o.Kind == blocks.Write {
		if s.file, err = os.Open(o.Path); err != nil {
			s.Close()
			return nil, err
		}
	}
	nonce := rand.Uint32()
	for i := range o.Conns {
		if err := s.dial(ctx, i, nonce+uint32(i)); err != nil {
			s.Close()
			return nil, fmt.Errorf("connection %d to %s: %w", i, o.Addr, err)
		}
	}
	runtime.GC() // what the handshakes left behind, before anything is measured
	return s, nil
}

func (s *Storage) dial(ctx context.Context, i int, nonce uint32) error {
	fd, enc, dec, err := connect(ctx, s.opt.Options, nonce)
	if err != nil {
		return err
	}
	c := &storageConn{s: s, fd: fd, index: i, slots: make([]slot, s.opt.Depth)}
	c.fill = func(p []byte) { blocks.Fill(p, c.now.off, c.now.generation) }
	for j := range c.slots {
		c.slots[j].number = i*s.opt.Depth + j
	}
	if c.wire = newFramed(enc, dec); s.opt.Raw {
		c.wire = rawDialect{s.opt.File}
	}
	s.conns = append(s.conns, c)
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &ev))
}

// Close closes all connections.
func (s *Storage) Close() {
	for _, c := range s.conns {
		_ = unix.Close(c.fd)
	}
	s.conns = nil
	_ = unix.Close(s.epoll)
	if s.file != nil {
		_ = s.file.Close() // nothing was written to it
	}
}

// Run loads the server for one slice, waits until every request is answered, and reads
// back some of what was acknowledged. The calling goroutine should be locked to its
// thread. After an error the Storage can only be closed.
func (s *Storage) Run(slice Slice) (Result, error) {
	res, err := s.meter.run(slice, s, uint64(s.opt.Conns*s.opt.Depth))
	if err != nil {
		return res, err
	}
	res.PerReply = s.conns[0].wire.size(s.opt.answerSize())
	return res, s.readBack()
}

// answerSize is how many bytes of data an answer has.
func (o StorageOptions) answerSize() int {
	if o.Kind == blocks.Read {
		return o.Size
	}
	return 0
}

// readBack compares the file with what was acknowledged last.
func (s *Storage) readBack() error {
	if s.opt.Kind != blocks.Write {
		return nil
	}
	seen := map[int64]bool{}
	for i := s.writes - 1; i >= max(0, s.writes-verifyEach); i-- {
		w := s.written[i%verifyEach]
		if seen[w.off] {
			continue // it was written again
		}
		seen[w.off] = true
		if _, err := s.file.ReadAt(s.check, w.off); err != nil {
			return err
		}
		g, err := blocks.Check(s.check, w.off)
		if err == nil && g != w.generation {
			err = fmt.Errorf("the file has generation %d", g)
		}
		if err != nil {
			return fmt.Errorf("%w: write %d at %d was acknowledged: %w", ErrReply, w.generation, w.off, err)
		}
	}
	return nil
}

// fill implements traffic.
func (s *Storage) fill() error {
	s.stopping, s.writes, s.cold, s.lastReply = false, 0, s.opt.Conns*s.opt.Depth, s.meter.now()
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
func (s *Storage) warm() bool { return s.cold == 0 }

// drain implements traffic.
func (s *Storage) drain() error {
	s.stopping = true
	for s.open > 0 {
		if err := s.turn(); err != nil {
			return err
		}
	}
	return nil
}

// turn implements traffic.
func (s *Storage) turn() error {
	n, err := unix.EpollWait(s.epoll, s.events[:], int(pollEach.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return os.NewSyscallError("epoll_wait", err)
	}
	if n <= 0 {
		if now := s.meter.now(); now-s.lastReply >= stallAfter {
			return fmt.Errorf("%w: %d requests open for %v", ErrStalled, s.open, now-s.lastReply)
		}
		return nil
	}
	for _, ev := range s.events[:n] {
		if err := s.conns[ev.Fd].handle(ev.Events); err != nil {
			return fmt.Errorf("connection %d: %w", ev.Fd, err)
		}
	}
	return nil
}

// issue queues the next request of a slot.
func (c *storageConn) issue(t *slot, i int, now time.Duration) error {
	s := c.s
	t.busy, t.issued = true, now
	t.round++
	r := blocks.Request{Kind: s.opt.Kind, Flags: s.opt.Flags}
	if r.Kind != blocks.Ping {
		r.Len = s.opt.Size
		r.Off = int64(t.number)*s.part + s.rng.Int64N(s.part/int64(r.Len))*int64(r.Len)
		t.off = r.Off
	}
	n := 0
	if r.Kind == blocks.Write {
		n = r.Len
		s.generation++
		t.generation = s.generation
	}
	s.open++
	var err error
	c.now = t
	c.out, err = c.wire.request(c.out, t.round<<16|uint64(i), r, n, c.fill)
	return err
}

// answer takes one.
func (c *storageConn) answer(id uint64, data []byte, now time.Duration) error {
	s, i := c.s, int(id&0xffff)
	if i >= len(c.slots) || !c.slots[i].busy || c.slots[i].round != id>>16 {
		return fmt.Errorf("%w: to a request %#x that is not open", ErrReply, id)
	}
	t := &c.slots[i]
	if len(data) != s.opt.answerSize() {
		return fmt.Errorf("%w: %d bytes of data", ErrReply, len(data))
	}
	if s.opt.Kind == blocks.Read {
		err := blocks.Stamped(data, t.off)
		if err == nil && id>>16&sampleMask == 0 {
			_, err = blocks.Check(data, t.off)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrReply, err)
		}
	}
	if s.opt.Kind == blocks.Write {
		s.written[s.writes%verifyEach] = write{t.off, t.generation}
		s.writes++
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
func (c *storageConn) handle(events uint32) error {
	if events&^unix.EPOLLOUT != 0 {
		if room := cap(c.in) - len(c.in); room < scratchSize/2 {
			c.in = append(make([]byte, 0, 2*cap(c.in)+scratchSize), c.in...)
		}
		n, err := unix.Read(c.fd, c.in[len(c.in):cap(c.in)])
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0:
			return fmt.Errorf("%w: the server closed", ErrReply)
		default:
			c.s.meter.received(n)
			c.in = c.in[:len(c.in)+n]
			if err := c.cut(); err != nil {
				return err
			}
		}
	}
	return c.flush()
}

// cut takes the whole answers out of what has come.
func (c *storageConn) cut() error {
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
		if err := c.answer(a.id, a.data, now); err != nil {
			return err
		}
	}
	c.in = c.in[:copy(c.in, c.in[done:])]
	return nil
}

// flush sends what is queued and watches for room if that was not all.
func (c *storageConn) flush() error {
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
	blocks := len(c.out) > 0
	if blocks == c.blocks {
		return nil
	}
	c.blocks = blocks
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.index)}
	if blocks {
		ev.Events |= unix.EPOLLOUT
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(c.s.epoll, unix.EPOLL_CTL_MOD, c.fd, &ev))
}
