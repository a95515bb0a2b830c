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
	in   []byte // the beginning of a request
	out  []byte // requests to be sent back
	sent []byte // those of the write in flight, else free memory
}

// Feed implements loop.Framer.
func (c *loopConn) Feed(s *loop.Socket, p []byte) []byte {
	if len(c.in) == 0 {
		p = p[c.take(p):]
	}
	c.in = append(c.in, p...)
	if n := c.take(c.in); n > 0 {
		c.in = c.in[:copy(c.in, c.in[n:])]
	}
	if len(c.out) == 0 {
		return nil
	}
	if s.Mark(); len(c.out) >= loopPending {
		s.Hold()
	}
	return nil
}

// take moves the whole requests at the beginning of p to what is sent, and
// returns their size.
func (c *loopConn) take(p []byte) (whole int) {
	whole = wholeRequests(p)
	c.out = append(c.out, p[:whole]...)
	return whole
}

// Pending implements loop.Framer.
func (c *loopConn) Pending(*loop.Socket) bool { return len(c.out) > 0 }

// Gather implements loop.Framer. The write that it built before has ended.
func (c *loopConn) Gather(s *loop.Socket, w *loop.Write) error {
	c.out, c.sent = c.sent[:0], c.out
	w.Refer(c.sent)
	w.Hold(c)
	s.Release()
	return nil
}

// LetGo implements loop.Held.
func (c *loopConn) LetGo() {}

// Ended implements loop.Framer.
func (c *loopConn) Ended(*loop.Socket, error) {}
