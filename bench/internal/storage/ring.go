package storage

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	ringStage = 64 << 10 // received bytes pass through here
	ringAsk   = 256      // answers of one send at most
)

// Ring is the least work of a storage server on a driver: one locked thread, which reads
// requests, gives them to the driver, and sends at the end of a turn. It has no budgets, no
// timers and no back-pressure, and is not for real use.
type Ring struct {
	cfg      Config
	addr     netip.AddrPort
	backend  uring.Backend
	drv      uring.Driver
	files    [ways]uring.File
	listener uring.Socket
	conns    []*ringConn // by number; nil: ended
	requests []*ringRequest
	free     []int // of requests
	dirty    []*ringConn
	stage    []byte
	stopping atomic.Bool
	syscalls atomic.Uint64
	done     chan error
}

// The user words of completions: a kind, and a number.
const (
	ofAccept uint64 = iota << 32
	ofReady
	ofSend
	ofFile
)

const ofMask uint64 = 0xffffffff_00000000

// NewRing starts one on a free port of the loopback address.
func NewRing(cfg Config, backend string) (*Ring, error) {
	r := &Ring{cfg: cfg, stage: make([]byte, ringStage), done: make(chan error, 1)}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := r.open(backend)
		opened <- err
		if err == nil {
			err = r.loop()
		}
		if r.drv != nil {
			if e := r.drv.CloseDriver(); err == nil {
				err = e
			}
		}
		r.done <- err
	}()
	if <-opened != nil {
		return nil, fmt.Errorf("ring: %w", <-r.done) // every part of it is closed
	}
	return r, nil
}

func (r *Ring) open(backend string) (err error) {
	if r.drv, err = uring.Open(uring.Config{Backend: uring.Backend(backend)}); err != nil {
		return err
	}
	r.backend = r.drv.Info().Backend
	for i, mode := range [...]uring.DirectMode{buffered: uring.Buffered, direct: uring.Direct} {
		if i == direct && !r.cfg.Direct {
			continue
		}
		fd, err := uring.Host().Open(r.cfg.Path, uring.FileOptions{Write: true, Direct: mode})
		if err != nil {
			return err
		}
		if r.files[i], err = r.drv.AdoptFile(fd); err != nil {
			return err
		}
	}
	if r.listener, err = r.drv.Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{}); err != nil {
		return err
	}
	r.addr = r.drv.LocalAddr(r.listener)
	_, err = r.drv.Arm(uring.KindAccept, r.listener, ofAccept)
	return err
}

// Addr returns where it listens.
func (r *Ring) Addr() net.Addr { return net.TCPAddrFromAddrPort(r.addr) }

// Settings has the backend.
func (r *Ring) Settings() map[string]string { return map[string]string{"backend": string(r.backend)} }

// Syscalls returns the number of system calls of its thread.
func (r *Ring) Syscalls() uint64 { return r.syscalls.Load() }

// Close ends it and all connections, and returns the error that ended it before, if any. Call
// it once.
func (r *Ring) Close() error {
	r.stopping.Store(true)
	r.drv.Wake()
	return <-r.done
}

// ringConn is one connection.
type ringConn struct {
	r       *Ring
	sock    uring.Socket
	index   uint64
	head    [blocks.HeadSize]byte
	want    []byte // of head, or of the data of now: the bytes that are still to come
	data    bool   // they are data
	now     int
	answers []int // to be sent
	sending []int
	vec     *uring.Vec
	marked  bool
	ended   bool
}

// ringRequest is one request.
type ringRequest struct {
	conn *ringConn
	what blocks.Head
	head [blocks.HeadSize]byte
	mem  *uring.Memory
	vec  *uring.Vec
}

func (r *Ring) loop() error {
	for !r.stopping.Load() {
		got, err := r.drv.Wait(-1)
		if err != nil {
			return err
		}
		for i := range got {
			if err := r.complete(&got[i]); err != nil {
				return err
			}
		}
		for i := 0; i < len(r.dirty); i++ { // it may become longer
			r.dirty[i].marked = false
			if err := r.dirty[i].send(); err != nil {
				return err
			}
		}
		r.dirty = r.dirty[:0]
		r.syscalls.Store(r.drv.Stats().Syscalls)
	}
	return nil
}

func (r *Ring) complete(cp *uring.Completion) error {
	n := cp.User &^ ofMask
	switch cp.User & ofMask {
	case ofAccept:
		if cp.Res < 0 {
			return fmt.Errorf("accept: %w", cp.Errno())
		}
		return r.accept(int(cp.Res))
	case ofReady:
		return r.conns[n].ready(cp)
	case ofSend:
		return r.conns[n].sent(cp)
	}
	return r.requests[n].done(int(n), cp)
}

func (r *Ring) accept(fd int) error {
	s, err := r.drv.Adopt(fd)
	if err != nil {
		return err
	}
	c := &ringConn{r: r, sock: s, index: uint64(len(r.conns))}
	c.want = c.head[:]
	if c.vec, err = uring.NewVec(2 * ringAsk); err != nil {
		return err
	}
	r.conns = append(r.conns, c)
	_, err = r.drv.Arm(uring.KindReady, s, ofReady|c.index)
	return err
}

func (c *ringConn) end() {
	if !c.ended {
		c.ended = true
		c.r.drv.Close(c.sock)
		for _, i := range c.answers {
			c.r.release(i)
		}
		c.answers = nil
	}
}

func (c *ringConn) ready(cp *uring.Completion) error {
	if c.ended {
		return nil
	}
	for {
		want := c.want
		n, errno := c.r.drv.Recv(c.sock, want, c.r.stage)
		switch {
		case errno == unix.EAGAIN:
			return c.listen(cp)
		case errno != 0 || n == 0:
			c.end()
			return nil
		}
		placed := min(n, len(want))
		err := c.filled(placed)
		if err == nil {
			err = c.take(c.r.stage[:n-placed])
		}
		if err != nil {
			return err
		}
		if n < len(want)+len(c.r.stage) { // it was all
			return c.listen(cp)
		}
	}
}

// listen asks for the next notice, if cp was the last one.
func (c *ringConn) listen(cp *uring.Completion) error {
	if cp.Flags&uring.More != 0 {
		return nil
	}
	_, err := c.r.drv.Arm(uring.KindReady, c.sock, ofReady|c.index)
	return err
}

func (c *ringConn) take(p []byte) (err error) {
	for len(p) > 0 && err == nil {
		n := copy(c.want, p)
		p, err = p[n:], c.filled(n)
	}
	return err
}

// filled says that n bytes of want have come.
func (c *ringConn) filled(n int) error {
	if c.want = c.want[n:]; len(c.want) > 0 {
		return nil
	}
	if !c.data {
		h, err := blocks.ParseHead(&c.head, c.r.cfg.Size)
		if err != nil {
			return err
		}
		if want := h.Kind == blocks.Write; want != (h.Data > 0) || want && h.Data != h.Len {
			return fmt.Errorf("%w: %d bytes of data for %d", blocks.ErrBlock, h.Data, h.Len)
		}
		c.want, err = c.begin(h)
		if c.data = len(c.want) > 0; c.data || err != nil {
			return err
		}
	}
	c.want, c.data = c.head[:], false
	return c.whole()
}

// begin takes a request for a head, and says where the data of a write goes.
func (c *ringConn) begin(h blocks.Head) ([]byte, error) {
	r := c.r
	if len(r.free) == 0 {
		vec, err := uring.NewVec(1)
		if err != nil {
			return nil, err
		}
		r.free = append(r.free, len(r.requests))
		r.requests = append(r.requests, &ringRequest{vec: vec})
	}
	last := len(r.free) - 1
	c.now, r.free = r.free[last], r.free[:last]
	q := r.requests[c.now]
	q.conn, q.what = c, h
	if h.Len > 0 && (q.mem == nil || len(q.mem.Bytes()) < h.Len) {
		_ = q.mem.Unmap() // it is not used any more
		var err error
		if q.mem, err = uring.Map(h.Len); err != nil {
			return nil, err
		}
	}
	if h.Kind == blocks.Write {
		return q.mem.Bytes()[:h.Len], nil
	}
	return nil, nil
}

func (r *Ring) release(i int) {
	r.requests[i].conn = nil
	r.free = append(r.free, i)
}

// whole gives a complete request to the driver.
func (c *ringConn) whole() error {
	q := c.r.requests[c.now]
	h := &q.what
	f := c.r.files[way(h.Request)]
	if !f.Valid() {
		return errWay(h.Request)
	}
	data := q.mem.Bytes()[:h.Len]
	q.vec.Reset()
	q.vec.Append(data)
	user := ofFile | uint64(c.now)
	if h.Kind == blocks.Read {
		_, err := c.r.drv.AskFile(f, uring.FileRequest{Kind: uring.KindRead, Vec: q.vec, Off: h.Off, User: user})
		return err
	}
	if err := blocks.Stamped(data, h.Off); err != nil {
		return err
	}
	_, err := c.r.drv.AskFile(f, uring.FileRequest{Kind: uring.KindWrite, Vec: q.vec, Off: h.Off, Durable: true, User: user})
	return err
}

func (q *ringRequest) done(i int, cp *uring.Completion) error {
	if cp.Res != int32(q.what.Len) {
		return fmt.Errorf("%d bytes at %d: result %d", q.what.Len, q.what.Off, cp.Res)
	}
	if q.what.Kind == blocks.Read {
		if err := blocks.Stamped(q.mem.Bytes()[:q.what.Len], q.what.Off); err != nil {
			return err
		}
	}
	q.conn.answer(i)
	return nil
}

func (c *ringConn) answer(i int) {
	if c.ended {
		c.r.release(i)
		return
	}
	h := c.r.requests[i].what
	h.Data = 0
	if h.Kind == blocks.Read {
		h.Data = h.Len
	}
	h.Put(&c.r.requests[i].head)
	c.answers = append(c.answers, i)
	c.mark()
}

func (c *ringConn) mark() {
	if !c.marked {
		c.marked = true
		c.r.dirty = append(c.r.dirty, c)
	}
}

// send begins to send the answers, if none are being sent.
func (c *ringConn) send() error {
	if c.ended || len(c.sending) > 0 || len(c.answers) == 0 {
		return nil
	}
	n := min(len(c.answers), ringAsk)
	c.sending = append(c.sending[:0], c.answers[:n]...)
	c.answers = c.answers[:copy(c.answers, c.answers[n:])]
	c.vec.Reset()
	for _, i := range c.sending {
		q := c.r.requests[i]
		c.vec.Append(q.head[:])
		if q.what.Kind == blocks.Read {
			c.vec.Append(q.mem.Bytes()[:q.what.Len])
		}
	}
	done, _, err := c.r.drv.Send(c.sock, c.vec, ofSend|c.index, 0)
	if err == nil && done {
		c.over()
	}
	return err
}

func (c *ringConn) over() {
	for _, i := range c.sending {
		c.r.release(i)
	}
	c.sending = c.sending[:0]
	if len(c.answers) > 0 {
		c.mark()
	}
}

func (c *ringConn) sent(cp *uring.Completion) error {
	c.over()
	if cp.Res < 0 {
		c.end()
	}
	return nil
}
