package load

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// socket is that of one connection.
type socket struct {
	fd, index int
	blocks    bool // waits for room (EPOLLOUT is armed)
}

// sockets are the sockets of all connections, with the accounts of their requests.
type sockets struct {
	epoll  int
	events [eventsMax]unix.EpollEvent
	all    []*socket
	handle func(index int, events uint32) error // of one connection
	meter  Meter

	open      int           // requests without a reply
	lastReply time.Duration // when the last one came
	cold      int           // connections, or slots of requests, that are not warm yet in this slice
	stopping  bool          // no new requests
}

func newSockets(pid int, handle func(index int, events uint32) error) (s sockets, err error) {
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return s, os.NewSyscallError("epoll_create1", err)
	}
	s.handle, s.meter = handle, NewMeter(pid)
	return s, nil
}

func (s *sockets) dial(ctx context.Context, o Options, nonce uint32) (*socket, *frame.Encoder, *frame.Decoder, error) {
	fd, enc, dec, err := connect(ctx, o, nonce)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connection %d to %s: %w", len(s.all), o.Addr, err)
	}
	c := &socket{fd: fd, index: len(s.all)}
	s.all = append(s.all, c)
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.index)}
	return c, enc, dec, os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &ev))
}

// Close closes all connections.
func (s *sockets) Close() {
	for _, c := range s.all {
		_ = unix.Close(c.fd)
	}
	s.all = nil
	_ = unix.Close(s.epoll)
}

// begin opens the accounts of a slice, in which so many have to answer once.
func (s *sockets) begin(cold int) { s.stopping, s.cold, s.lastReply = false, cold, s.meter.now() }

func (s *sockets) answered(now, issued time.Duration) {
	s.open--
	s.lastReply = now
	s.meter.Answered(now - issued)
}

// Stop implements Traffic.
func (s *sockets) Stop() { s.stopping = true }

// Pending implements Traffic.
func (s *sockets) Pending() int { return s.open }

// Warm implements Traffic.
func (s *sockets) Warm() bool { return s.cold == 0 }

// wait waits for events of connections, for at most longest, and handles them. A long time
// without an event, while requests are open, is an error.
func (s *sockets) wait(longest time.Duration) error {
	ms := longest.Milliseconds()
	if wait := unix.NsecToTimespec(int64(longest)); ms < pollEach.Milliseconds() {
		// epoll_wait(2) knows milliseconds, and a request may be due within less.
		if _, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.epoll), Events: unix.POLLIN}}, &wait, nil); err != nil && err != unix.EINTR {
			return os.NewSyscallError("ppoll", err)
		}
		ms = 0
	}
	n, err := unix.EpollWait(s.epoll, s.events[:], int(ms))
	if err != nil && err != unix.EINTR {
		return os.NewSyscallError("epoll_wait", err)
	}
	if silent := s.meter.now() - s.lastReply; n <= 0 && s.open > 0 && silent >= StallAfter {
		return fmt.Errorf("%w: %d requests open for %v", ErrStalled, s.open, silent)
	}
	for _, ev := range s.events[:max(0, n)] {
		if err := s.handle(int(ev.Fd), ev.Events); err != nil {
			return fmt.Errorf("connection %d: %w", ev.Fd, err)
		}
	}
	return nil
}

func (s *sockets) receive(c *socket, p []byte) (int, error) {
	n, err := unix.Read(c.fd, p)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, fmt.Errorf("%w: the server closed", ErrReply)
	}
	s.meter.Received(n)
	return n, nil
}

// watch has a connection wake its client when there is room to send again, if requests are left
// that wait for it.
func (s *sockets) watch(c *socket, left bool) error {
	if left == c.blocks {
		return nil
	}
	c.blocks = left
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.index)}
	if left {
		ev.Events |= unix.EPOLLOUT
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.epoll, unix.EPOLL_CTL_MOD, c.fd, &ev))
}

// connectTimeout bounds connecting and the handshake together.
const connectTimeout = 10 * time.Second

// connect opens one connection, up to the data phase, and returns its
// non-blocking descriptor, which is the caller's, and of msgr2 its codecs.
// nonce makes it a client of its own.
func connect(ctx context.Context, o Options, nonce uint32) (fd int, enc *frame.Encoder, dec *frame.Decoder, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return -1, nil, nil, err
	}
	defer c.Close()
	tcp := c.(*net.TCPConn) // without delay, which is net's default
	switch {
	case o.Raw:
	case o.Msgr1:
		err = session.Connect1(ctx, tcp, o.Nonce, nonce)
	default:
		enc, dec, err = session.Connect(ctx, tcp, o.Nonce, nonce, o.Secure)
	}
	if err != nil {
		return -1, nil, nil, fmt.Errorf("handshake: %w", err)
	}
	fd, err = Detach(tcp)
	return fd, enc, dec, err
}

// Detach duplicates the descriptor of c, so that it outlives c. It stays non-blocking.
func Detach(c syscall.Conn) (int, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var failed error
	err = rc.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = cmp.Or(err, failed); err != nil {
		return -1, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return fd, nil
}
