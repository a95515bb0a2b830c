package probe

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Socket is one TCP connection with a Probe. The handshake and the data phase ask the
// probe by it; the nil Socket asks no probe. The probe disturbs it by Reset and
// HalfClose, which have no effect before it is connected and once the data phase
// has begun; any goroutine may call them, but no dispatcher on a core.
type Socket struct {
	probe    Probe
	id       uint64
	accepted bool
	link     atomic.Pointer[Link]
	conn     Conn // what it is told of; changed by Decided alone, between two steps
	decided  bool
}

// Link is the TCP connection of a Socket: a *loop.Link.
type Link interface {
	PeerAddr() netip.AddrPort
	Reset()
	HalfClose()
}

// NewSocket is a socket that p is told of, nil if p is nil. id numbers it within its
// messenger, from 1. conn is the connection that dials, nil if it is accepted.
func NewSocket(p Probe, id uint64, accepted bool, conn Conn) *Socket {
	if p == nil {
		return nil
	}
	return &Socket{probe: p, id: id, accepted: accepted, conn: conn}
}

// ID is the number of the socket in its messenger.
func (s *Socket) ID() uint64 { return s.id }

// Accepted says whether we accepted it, else we dialled.
func (s *Socket) Accepted() bool { return s.accepted }

// Peer is the socket address of the other end, zero before it is connected.
func (s *Socket) Peer() (a netip.AddrPort) {
	s.with(func(l Link) { a = l.PeerAddr() })
	return a
}

// Reset closes the socket with a TCP reset.
func (s *Socket) Reset() { s.with(Link.Reset) }

// HalfClose ends our direction of the stream; the peer's is still read.
func (s *Socket) HalfClose() { s.with(Link.HalfClose) }

// with says whether there is a link, and does something to it.
func (s *Socket) with(do func(Link)) bool {
	l := s.link.Load()
	if l != nil {
		do(*l)
	}
	return l != nil
}

// Connected is called with the TCP connection, once there is one.
func (s *Socket) Connected(l Link) {
	if s != nil {
		s.link.Store(&l)
	}
}

// Step asks the probe about a step of a handshake, and returns the fault that it
// asks for, or nil.
func (s *Socket) Step(ctx context.Context, p Point, w When) error {
	if s == nil {
		return nil
	}
	return s.step(ctx, p, w)
}

func (s *Socket) step(ctx context.Context, p Point, w When) error {
	err := s.probe.At(ctx, Event{Point: p, When: w, Socket: s, Conn: s.conn})
	switch err {
	case ErrReset:
		s.Reset()
	case ErrHalfClose:
		if s.with(Link.HalfClose) {
			return nil
		}
	}
	return err
}

// Decided tells the probe what became of an accepted socket, the first time that it
// is called: SocketDecided. conn is nil for none.
func (s *Socket) Decided(ctx context.Context, conn Conn, tookOver bool) {
	if s == nil || s.decided {
		return
	}
	s.conn, s.decided = conn, true
	_ = s.probe.At(ctx, Event{Point: Point{Step: SocketDecided}, When: After, Socket: s, Conn: conn, TookOver: tookOver}) // there is nothing to disturb
}

// Frame asks the probe about a frame of the data phase, and returns its answer. On
// the core.
func (s *Socket) Frame(tag frame.Tag, write bool) error {
	if s == nil {
		return nil
	}
	p := Point{Step: FrameRead, Tag: tag}
	if write {
		p.Step = FrameWrite
	}
	return s.probe.At(context.Background(), Event{Point: p, When: Data, Socket: s, Conn: s.conn})
}
