package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// verifyEach is the number of acknowledged writes that are read back after each slice.
const verifyEach = 64

// Storage is a set of connections that read or write blocks of a file. Each request
// under way has a part of the file for itself, and takes a random place in it.
type Storage struct {
	sockets
	opt   Options
	conns []*slotConn

	file       *os.File // written blocks are read back from it
	rng        *rand.Rand
	generation uint64
	part       int64             // bytes of the file for each slot
	written    [verifyEach]write // acknowledged in this slice, a ring
	writes     int
	room       []byte
}

// write is one that was acknowledged.
type write struct {
	off        int64
	generation uint64
}

// OpenStorage connects and, unless o.Raw, runs the handshake on every connection.
func OpenStorage(ctx context.Context, o Options) (*Storage, error) {
	s := &Storage{
		opt: o, rng: rand.New(rand.NewPCG(rand.Uint64(), 2)), generation: rand.Uint64() >> 24,
		part: o.File / int64(o.Conns*o.Depth) / blocks.Size * blocks.Size, room: make([]byte, o.Size),
	}
	var err error
	if s.sockets, err = newSockets(o.PID, s.happened); err != nil {
		return nil, err
	}
	nonce := rand.Uint32()
	if o.Kind == blocks.Write {
		s.file, err = os.Open(o.Path)
	}
	for i := 0; i < o.Conns && err == nil; i++ {
		err = s.add(ctx, i, nonce+uint32(i))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	runtime.GC() // the garbage of the handshakes, before the measurement
	return s, nil
}

// Close closes all connections.
func (s *Storage) Close() {
	s.sockets.Close()
	if s.file != nil {
		_ = s.file.Close() // it was only read
	}
}

// Run loads the server for one slice, waits until every request is answered, and reads back
// some acknowledged writes. The calling goroutine should be locked to its thread. After an
// error the Storage can only be closed.
func (s *Storage) Run(slice Slice) (Result, error) {
	s.writes = 0
	res, err := s.meter.Run(slice, s, uint64(s.opt.Conns*s.opt.Depth))
	if err != nil {
		return res, err
	}
	res.PerReply = s.conns[0].wire.size(s.opt.answerSize())
	return res, s.readBack()
}

func (o Options) answerSize() int {
	if o.Kind == blocks.Read {
		return o.Size
	}
	return 0
}

// readBack compares the file with the last acknowledged writes.
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
		if _, err := s.file.ReadAt(s.room, w.off); err != nil {
			return err
		}
		g, err := blocks.Check(s.room, w.off)
		if err == nil && g != w.generation {
			err = fmt.Errorf("the file has generation %d", g)
		}
		if err != nil {
			return fmt.Errorf("%w: write %d at %d was acknowledged: %w", ErrReply, w.generation, w.off, err)
		}
	}
	return nil
}

// ask decides the next request of a slot: a random place in its part of the file.
func (s *Storage) ask(t *slot) blocks.Request {
	r := blocks.Request{Kind: s.opt.Kind, Flags: s.opt.Flags, Len: s.opt.Size}
	r.Off = int64(t.number)*s.part + s.rng.Int64N(s.part/int64(r.Len))*int64(r.Len)
	t.at = r.Off
	if r.Kind == blocks.Write {
		s.generation++
		t.generation = s.generation
	}
	return r
}

func (s *Storage) check(t *slot, data []byte) error {
	if len(data) != s.opt.answerSize() {
		return fmt.Errorf("%d bytes of data", len(data))
	}
	switch s.opt.Kind {
	case blocks.Write:
		s.written[s.writes%verifyEach] = write{t.at, t.generation}
		s.writes++
	case blocks.Read:
		if err := blocks.Stamped(data, t.at); err != nil || t.round&SampleMask != 0 {
			return err
		}
		// Each block by itself: earlier writes may have been smaller than this read.
		for at := 0; at < len(data); at += blocks.Size {
			if _, err := blocks.Check(data[at:at+blocks.Size], t.at+int64(at)); err != nil {
				return err
			}
		}
	}
	return nil
}

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

func (s *Storage) add(ctx context.Context, i int, nonce uint32) error {
	at, enc, dec, err := s.dial(ctx, s.opt, nonce)
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

// Turn implements Traffic.
func (s *Storage) Turn() error { return s.wait(pollEach) }

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

// dialect is how requests and answers look on one connection.
type dialect interface {
	// request appends one with n bytes of data, which fill writes.
	request(dst []byte, id uint64, r blocks.Request, n int, fill func(p []byte)) ([]byte, error)
	// answer takes one off the beginning of p.
	answer(p []byte) (answer, error)
	// size is the size of an answer with n bytes of data.
	size(n int) int
}

// answer is one answer. The data stays in the received bytes.
type answer struct {
	size   int  // in bytes; 0: it is not whole
	other  bool // it is none, but may be there
	failed bool // data is the reason
	id     uint64
	data   []byte
}

// rawDialect is without frames.
type rawDialect struct{ file int64 }

func (d rawDialect) request(dst []byte, id uint64, r blocks.Request, n int, fill func([]byte)) ([]byte, error) {
	at := len(dst)
	dst = slices.Grow(dst, blocks.HeadSize+n)[:at+blocks.HeadSize+n]
	blocks.Head{ID: id, Request: r, Data: n}.Put((*[blocks.HeadSize]byte)(dst[at:]))
	fill(dst[at+blocks.HeadSize:])
	return dst, nil
}

func (d rawDialect) answer(p []byte) (a answer, err error) {
	if len(p) < blocks.HeadSize {
		return a, nil
	}
	h, err := blocks.ParseHead((*[blocks.HeadSize]byte)(p), d.file)
	if err != nil || len(p) < blocks.HeadSize+h.Data {
		return a, err
	}
	a.size, a.failed, a.id = blocks.HeadSize+h.Data, h.Failed, h.ID
	a.data = p[blocks.HeadSize:a.size]
	return a, nil
}

func (rawDialect) size(n int) int { return blocks.HeadSize + n }

// framed is msgr2.1 in crc mode. It belongs to one connection.
type framed struct {
	frames
	enc   *frame.Encoder
	seq   uint64                   // of the last request
	front [blocks.RequestSize]byte // of the last request
}

func (d *framed) request(dst []byte, id uint64, r blocks.Request, n int, fill func([]byte)) ([]byte, error) {
	d.seq++
	r.Put(&d.front)
	front := d.front[:]
	h := frame.MessageHeader{Seq: d.seq, TID: id, Type: blocks.TypeRequest, Priority: 127, Version: 1, Flags: 3}
	dst = d.enc.AppendMessage(dst, &h, len(front), 0, n)
	dst = append(dst, front...)
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	fill(dst[at:])
	return d.enc.AppendClose(dst, [4][]byte{1: front, 3: dst[at : at+n]}), nil
}

func (d *framed) answer(p []byte) (a answer, err error) {
	f, size, err := d.next(p)
	a.size, a.other = size, f.Tag != frame.TagMessage
	if err != nil || size == 0 || a.other {
		return a, err
	}
	m, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil {
		return a, err
	}
	if a.id, a.data = m.TID, f.Seg[3]; m.Type != blocks.TypeDone {
		a.failed, a.data = true, fmt.Appendf(nil, "message type %d: %s", m.Type, f.Seg[1])
	}
	return a, nil
}

func (d *framed) size(n int) int { return d.enc.FrameSize(frame.MessageHeaderSize, 0, 0, n) }
