package server

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// loopPending is what a connection may have for a peer that does not read, in
// bytes.
const loopPending = 1 << 20

// Loop is an echo server on the messenger's loop, without the messenger: one
// core, no frame codec. It cuts requests by their length and sends them back as
// they came, so its figures are the price of the loop.
type Loop struct {
	plane    *loop.Plane
	listener *loop.Listener
}

// NewLoop starts one on a free port of the loopback address.
func NewLoop() (*Loop, error) {
	p, err := loop.New(loop.Config{Cores: 1})
	if err != nil {
		return nil, fmt.Errorf("loop: %w", err)
	}
	l, err := p.Core(0).Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{}, func(link *loop.Link) {
		_ = link.Carry(new(loopConn)) // fails if the peer is gone already
	})
	if err != nil {
		_ = p.Close() // this is no core
		return nil, fmt.Errorf("loop: %w", err)
	}
	return &Loop{p, l}, nil
}

// Addr returns where it listens.
func (l *Loop) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.listener.Addr()) }

// Settings says what the loop runs on.
func (l *Loop) Settings() map[string]string {
	return map[string]string{"backend": string(l.plane.Info().Backend)}
}

// Syscalls returns how many system calls its core has made.
func (l *Loop) Syscalls() uint64 {
	st, err := l.plane.Core(0).Stats()
	if err != nil {
		return 0
	}
	return st.Driver.Syscalls
}

// Close ends it and all connections.
func (l *Loop) Close() error { return l.plane.Close() }

// loopConn is the protocol of one connection. Owner: the core.
type loopConn struct {
	out  []loopReply
	size int // of out, in bytes
}

// loopReply is requests to be sent back, at the beginning of a buffer.
type loopReply struct {
	buf  *loop.Buffer
	size int
}

// Feed implements loop.Framer.
func (c *loopConn) Feed(s *loop.Socket, p []byte) (t loop.Taken) {
	for t.Need = requestHead; len(p)-t.Bytes >= t.Need && c.size+t.Bytes < loopPending; {
		if t.Need = requestSize(p[t.Bytes:]); len(p)-t.Bytes >= t.Need {
			t.Bytes, t.Frames, t.Need = t.Bytes+t.Need, t.Frames+1, requestHead
		}
	}
	if t.Bytes > 0 {
		b, err := s.Keep(p[:t.Bytes])
		if err != nil {
			s.Fault(err)
			return t
		}
		c.out, c.size = append(c.out, loopReply{b, t.Bytes}), c.size+t.Bytes
		s.Mark()
	}
	if c.size >= loopPending {
		s.Hold()
	}
	return t
}

// Pending implements loop.Framer.
func (c *loopConn) Pending(*loop.Socket) bool { return len(c.out) > 0 }

// Gather implements loop.Framer.
func (c *loopConn) Gather(s *loop.Socket, w *loop.Write) error {
	n := 0
	for ; n < len(c.out) && !w.Full(); n++ {
		r := c.out[n]
		w.Refer(r.buf.Bytes()[:r.size])
		w.Hold(r.buf)
		c.size -= r.size
	}
	c.out = c.out[:copy(c.out, c.out[n:])]
	s.Release()
	return nil
}

// Ended implements loop.Framer.
func (c *loopConn) Ended(*loop.Socket, error) {
	for _, r := range c.out {
		r.buf.LetGo()
	}
}
