package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Link is a socket of a core as a handshake sees it: exact reads and writes
// for one ordinary goroutine, carried out by the core. Bytes that arrive
// beyond what was asked for stay with the socket. A Link ends by Close, or by
// being given to a Handler, which owns the socket from then on.
//
// One goroutine uses a Link at a time; Close may be called by any.
type Link struct {
	core        *Core
	local, peer netip.AddrPort
	result      chan error // answer to the call under way

	sock *socket // the core's; nil once closed or given away
}

// ErrLinkClosed is what calls on a closed Link return.
var ErrLinkClosed = errors.New("dataplane: link closed")

// Dial connects to an address through the core. local may be the zero value,
// or an address and port to bind. A core that is being removed refuses with
// ErrStopped. Any goroutine but the core's.
func (c *Core) Dial(ctx context.Context, local, to netip.AddrPort, opt uring.SocketOptions) (*Link, error) {
	l := &Link{core: c, peer: to, result: make(chan error, 1)}
	err := c.Do(func(c *Core) {
		if c.draining.Load() {
			l.answer(ErrStopped)
			return
		}
		s := newSocket(c)
		us, _, err := c.drv.Connect(local, to, opt, s.user)
		if err != nil {
			s.fault(err)
			l.answer(err)
			return
		}
		s.sock, s.link, s.ops = us, l, 1
		l.sock = s
	})
	if err != nil {
		return nil, err
	}
	select {
	case err = <-l.result:
	case <-c.done:
		err = ErrStopped
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("connect to %v: %w", to, err)
	}
	return l, nil
}

// Core is the core that owns the socket.
func (l *Link) Core() *Core { return l.core }

// LocalAddr is the socket's own address.
func (l *Link) LocalAddr() netip.AddrPort { return l.local }

// PeerAddr is the address of the other end.
func (l *Link) PeerAddr() netip.AddrPort { return l.peer }

// ReadFull fills p. The end of the stream is io.EOF before the first byte and
// io.ErrUnexpectedEOF behind it. After an error, that of ctx included, the link
// is closed.
func (l *Link) ReadFull(ctx context.Context, p []byte) error {
	if len(p) == 0 {
		return ctx.Err()
	}
	return l.await(ctx, func(s *socket) { s.linkRead(p) })
}

// Write sends all of p, which it does not keep. After an error, that of ctx
// included, the link is closed.
func (l *Link) Write(ctx context.Context, p []byte) error {
	if len(p) == 0 {
		return ctx.Err()
	}
	q := append([]byte(nil), p...)
	return l.await(ctx, func(s *socket) { s.linkWrite(q) })
}

// await starts an operation on the core and waits for its result.
func (l *Link) await(ctx context.Context, start func(s *socket)) error {
	if err := ctx.Err(); err != nil {
		l.Close()
		return context.Cause(ctx)
	}
	err := l.core.Do(func(*Core) {
		if l.sock == nil || l.sock.link != l {
			l.answer(ErrLinkClosed) // unless the cause is there already
			return
		}
		start(l.sock)
	})
	if err != nil {
		return err
	}
	select {
	case err = <-l.result:
	case <-l.core.done:
		err = ErrStopped
	case <-ctx.Done():
		// The core may be writing into the caller's memory: it has to let go
		// before we return.
		l.Close()
		err = context.Cause(ctx)
		select {
		case stale := <-l.result:
			_ = stale // it had ended well: not an answer to the next call
		default:
		}
	}
	if err != nil {
		l.Close()
	}
	return err
}

// Close shuts the socket down and waits until the core has let go of the
// caller's memory. It does nothing to a link that was given away.
func (l *Link) Close() {
	_ = l.core.call(func(*Core) {
		if s := l.sock; s != nil && s.link == l {
			s.fault(ErrLinkClosed)
		}
		l.sock = nil
	})
}

// Reset closes the link, and the peer sees a TCP reset. For tests of the other
// end.
func (l *Link) Reset() {
	_ = l.core.call(func(*Core) {
		if s := l.sock; s != nil && s.link == l {
			s.fault(ErrReset)
		}
		l.sock = nil
	})
}

// HalfClose ends our direction of the stream: Write fails from here on, what
// the peer still sends can be read. For tests of the other end.
func (l *Link) HalfClose() {
	_ = l.core.call(func(*Core) {
		if s := l.sock; s != nil && s.link == l {
			s.endWriting()
		}
	})
}

// Shutdown ends both directions of the stream and keeps the link: reads
// and writes fail from here on, and the peer sees the end of the stream. For
// tests of the other end.
func (l *Link) Shutdown() {
	_ = l.core.call(func(c *Core) {
		if s := l.sock; s != nil && s.link == l {
			c.drv.Shutdown(s.sock)
		}
	})
}

// answer ends the call under way. On the core.
func (l *Link) answer(err error) {
	select {
	case l.result <- err:
	default: // the caller has gone: its deadline came first
	}
}

// linkRead asks for len(p) bytes into p.
func (s *socket) linkRead(p []byte) {
	s.want, s.wantGot = p, 0
	s.feedLink()
}

// feedLink gives the reader what has arrived.
func (s *socket) feedLink() {
	if s.want == nil {
		return
	}
	n := copy(s.want[s.wantGot:], s.backlog[s.taken:])
	s.wantGot += n
	s.consumeBacklog(n)
	switch {
	case s.wantGot == len(s.want):
		s.want = nil
		s.link.answer(nil)
	case s.eof:
		err := io.EOF
		if s.wantGot > 0 {
			err = io.ErrUnexpectedEOF
		}
		s.want = nil
		s.link.answer(err)
	}
	s.resumeReading()
}

// linkWrite sends p.
func (s *socket) linkWrite(p []byte) {
	v, err := s.core.vec()
	if err != nil {
		s.link.answer(err)
		return
	}
	v.Append(p)
	s.tx.vec = v
	s.writing = true
	s.send(0)
}

// connected is the completion of Dial.
func (s *socket) connected(res int32) {
	l := s.link
	if l == nil {
		return
	}
	if res < 0 {
		s.fault(unix.Errno(-res))
		return
	}
	l.local = s.core.drv.LocalAddr(s.sock)
	s.arm()
	l.answer(nil)
}
