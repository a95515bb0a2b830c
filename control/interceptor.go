package control

import (
	"context"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Interceptor is the break-point interface of tests: it sees every step of
// every connection and can disturb it. An error that it returns is a fault at
// that place. Implementations are called from many goroutines at once.
type Interceptor interface {
	// Step is called before and after every step of a handshake, on its
	// goroutine; it may block until ctx ends. conn is nil until an acceptor
	// has decided which connection the socket belongs to.
	Step(ctx context.Context, conn *Conn, socket uint64, p handshake.Point, after bool) error
	// Frame is called for every frame of the data phase, on the core; it must
	// not block. The errors of package dataplane that begin with a break point's
	// action have their meaning: ErrHold and ErrStall stop the connection until
	// Conn.Resume.
	Frame(conn *Conn, tag frame.Tag, write bool) error
}

// SocketInterceptor is an Interceptor that also wants to know about sockets.
type SocketInterceptor interface {
	Interceptor
	// Opened is called with every socket, before the first step on it: for a
	// dialled one behind the dial.
	Opened(s *Socket)
	// Decided is called once for every accepted socket: it made conn, or it
	// took conn over (replaced), or it was closed without a connection of its
	// own (conn is nil). It comes before the accept event, and must not block
	// nor call the messenger or its connections.
	Decided(s *Socket, conn *Conn, replaced bool)
}

// Socket is one TCP connection during its handshake, as a SocketInterceptor
// can disturb it. The methods that do so have no effect once a connection is
// ready, and are not for a dispatcher on a core.
type Socket struct {
	id       uint64
	accepted bool
	link     *dataplane.Link
}

// ID is the number of the socket in its messenger, as Step gets it.
func (s *Socket) ID() uint64 { return s.id }

// Accepted says whether we accepted it, else we dialled.
func (s *Socket) Accepted() bool { return s.accepted }

// Peer is the socket address of the other end.
func (s *Socket) Peer() netip.AddrPort { return s.link.PeerAddr() }

// Reset closes the socket with a TCP reset.
func (s *Socket) Reset() { s.link.Reset() }

// HalfClose ends our direction of the stream; the peer's is still read.
func (s *Socket) HalfClose() { s.link.HalfClose() }

// Shutdown ends both directions of the stream and leaves the socket open.
func (s *Socket) Shutdown() { s.link.Shutdown() }

// Resume lets a connection go on that an Interceptor stopped in the data phase.
func (c *Conn) Resume() { c.h.Resume() }

// hook is the interceptor as one handshake sees it.
type hook struct {
	i      Interceptor
	conn   *Conn
	socket uint64 // number of the socket in its messenger, from 1
	opened *Socket
}

// open tells a SocketInterceptor of the socket.
func (h *hook) open(link *dataplane.Link, accepted bool) {
	if i, ok := h.i.(SocketInterceptor); ok {
		h.opened = &Socket{id: h.socket, accepted: accepted, link: link}
		i.Opened(h.opened)
	}
}

// decide says what became of an accepted socket.
func (h *hook) decide(conn *Conn, replaced bool) {
	if h == nil || h.opened == nil {
		return
	}
	h.conn = conn
	h.i.(SocketInterceptor).Decided(h.opened, conn, replaced)
	h.opened = nil
}

func (h *hook) Before(ctx context.Context, p handshake.Point) error {
	return h.i.Step(ctx, h.conn, h.socket, p, false)
}

func (h *hook) After(ctx context.Context, p handshake.Point) error {
	return h.i.Step(ctx, h.conn, h.socket, p, true)
}

// frameHook is the interceptor as a handler sees it.
type frameHook struct {
	i    Interceptor
	conn *Conn
}

func (h frameHook) Frame(tag frame.Tag, write bool) error { return h.i.Frame(h.conn, tag, write) }
