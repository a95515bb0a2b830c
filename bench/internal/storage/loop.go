package storage

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Loop is a storage server on one core of the messenger's loop, with its files, without the
// messenger: what the frames and their checksums cost is what a Messenger takes above it.
type Loop struct {
	cfg      Config
	plane    *loop.Plane
	listener *loop.Listener
	files    [ways]*loop.File // the core's
	free     *loopRequest     // the core's
}

// NewLoop starts one on a free port of the loopback address.
func NewLoop(cfg Config, backend string) (*Loop, error) {
	p, err := loop.New(loop.Config{Cores: 1, Driver: uring.Config{Backend: uring.Backend(backend)}})
	if err != nil {
		return nil, fmt.Errorf("loop: %w", err)
	}
	l := &Loop{cfg: cfg, plane: p}
	if err := l.start(); err != nil {
		_ = p.Close() // this is no core
		return nil, fmt.Errorf("loop: %w", err)
	}
	return l, nil
}

func (l *Loop) start() error {
	core := l.plane.Core(0)
	for i, mode := range [...]uring.DirectMode{buffered: uring.Buffered, direct: uring.Direct} {
		if i == direct && !l.cfg.Direct {
			continue
		}
		d, err := l.plane.OpenFile(l.cfg.Path, loop.FileOptions{FileOptions: uring.FileOptions{Write: true, Direct: mode}})
		if err != nil {
			return err
		}
		attached := make(chan error, 1)
		if err := core.Do(func(c *loop.Core) {
			var err error
			l.files[i], err = c.AttachFile(d)
			attached <- err
		}); err != nil {
			return err
		}
		if err := <-attached; err != nil {
			return err
		}
	}
	var err error
	l.listener, err = core.Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{}, func(link *loop.Link) {
		c := &loopConn{l: l, core: core}
		c.in = cutter{size: l.cfg.Size, begin: c.begin, whole: c.whole}
		_ = link.Carry(c) // fails if the peer is gone already
	})
	return err
}

// Addr returns where it listens.
func (l *Loop) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.listener.Addr()) }

// Settings says what the loop runs on.
func (l *Loop) Settings() map[string]string {
	return map[string]string{"backend": string(l.plane.Info().Backend)}
}

// Syscalls returns how many system calls its core has made.
func (l *Loop) Syscalls() (n uint64, known bool) {
	st, err := l.plane.Core(0).Stats()
	return st.Driver.Syscalls, err == nil
}

// Close ends it and all connections.
func (l *Loop) Close() error { return l.plane.Close() }

// loopRequest is one request. Owner: the core.
type loopRequest struct {
	loop.FileOp
	conn *loopConn
	what blocks.Head
	head [blocks.HeadSize]byte // of the answer
	buf  *loop.Buffer          // of the data
	data []byte                // of a write, or to be sent
	next *loopRequest
}

// LetGo implements loop.Held: the answer is sent.
func (r *loopRequest) LetGo() {
	l := r.conn.l
	if r.buf != nil {
		r.buf.LetGo()
	}
	r.conn, r.buf, r.data = nil, nil, nil
	l.free, r.next = r, l.free
}

// loopConn is the protocol of one connection. Owner: the core.
type loopConn struct {
	l       *Loop
	core    *loop.Core
	sock    *loop.Socket // nil: it has ended
	in      cutter
	now     *loopRequest   // whose data is coming
	answers []*loopRequest // to be sent
	frames  int            // that the present call has taken
}

// Feed implements loop.Framer.
func (c *loopConn) Feed(s *loop.Socket, p []byte) loop.Taken {
	c.sock, c.frames = s, 0
	c.check(c.in.take(p))
	return loop.Taken{Bytes: len(p), Frames: c.frames}
}

// Target implements loop.Placer.
func (c *loopConn) Target(s *loop.Socket) ([]byte, int) {
	c.sock = s
	return c.in.want, loop.ReceiveBytes
}

// Filled implements loop.Placer.
func (c *loopConn) Filled(_ *loop.Socket, n int) (frames int) {
	c.frames = 0
	c.check(c.in.filled(n))
	return c.frames
}

func (c *loopConn) check(err error) {
	if err != nil && c.sock != nil {
		s := c.sock
		c.sock = nil
		s.Fault(err)
	}
}

func (c *loopConn) begin(h blocks.Head) (data []byte, err error) {
	r := c.l.free
	if r == nil {
		r = new(loopRequest)
		r.Done = r.done
	} else {
		c.l.free = r.next
	}
	r.conn, r.what, c.now = c, h, r
	if h.Kind == blocks.Write {
		if r.buf, err = c.core.Lend(h.Len); err != nil {
			return nil, err
		}
		r.data = r.buf.Bytes()[:h.Len]
	}
	return r.data, nil
}

func (c *loopConn) whole() error {
	r := c.now
	c.now = nil
	c.frames++
	f := c.l.files[way(r.what.Request)]
	switch {
	case r.what.Kind == blocks.Ping:
		c.answer(r)
		return nil
	case f == nil:
		return errWay(r.what.Request)
	case r.what.Kind == blocks.Read:
		return f.ReadBuffer(&r.FileOp, r.what.Len, r.what.Off)
	}
	if err := blocks.Stamped(r.data, r.what.Off); err != nil {
		return err
	}
	how := loop.Through
	if r.what.Flags&blocks.Grouped != 0 {
		how = loop.Committed
	}
	return f.WriteAt(&r.FileOp, r.data, r.what.Off, how)
}

// done takes the end of a request on the file.
func (r *loopRequest) done(c *loop.Core, op *loop.FileOp) {
	err := op.Err
	if err == nil && r.what.Kind == blocks.Read {
		if err = blocks.Stamped(op.Data, r.what.Off); err == nil {
			r.buf, r.data = op.TakeBuffer(), op.Data
		}
	} else {
		r.data = nil
	}
	if err != nil {
		r.conn.check(err)
	}
	r.conn.answer(r)
}

func (c *loopConn) answer(r *loopRequest) {
	if c.sock == nil { // it has ended
		r.LetGo()
		return
	}
	h := r.what
	h.Data = len(r.data)
	h.Put(&r.head)
	c.answers = append(c.answers, r)
	c.sock.Mark()
}

// Pending implements loop.Framer.
func (c *loopConn) Pending(*loop.Socket) bool { return len(c.answers) > 0 }

// Gather implements loop.Framer.
func (c *loopConn) Gather(_ *loop.Socket, w *loop.Write) error {
	n := 0
	for n < len(c.answers) && !w.Full() && w.Room() >= blocks.HeadSize {
		r := c.answers[n]
		w.Out = append(w.Out, r.head[:]...)
		w.Refer(r.data)
		w.Hold(r)
		n++
	}
	c.answers = c.answers[:copy(c.answers, c.answers[n:])]
	return nil
}

// Ended implements loop.Framer.
func (c *loopConn) Ended(*loop.Socket, error) {
	c.sock = nil
	for _, r := range c.answers {
		r.LetGo()
	}
	c.answers = nil
}
