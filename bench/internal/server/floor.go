package server

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

const (
	floorBuffer = 256 << 10 // one hot buffer for all connections
	floorEvents = 128
	floorPieces = 4 // per connection and turn
)

// Floor is the least work of a TCP echo server: one locked thread, one epoll loop, one buffer;
// it writes the bytes of one read back in one piece. It does not decode the bytes, so its
// figures are the price of TCP itself. A floor of NewFloorStore does.
type Floor struct {
	addr     net.Addr
	epoll    int
	listener int
	stop     int // eventfd
	done     chan error

	conns    map[int32]*floorConn
	buf      []byte
	store    *store        // nil: bytes are written back at once
	calls    uint64        // system calls of the loop
	syscalls atomic.Uint64 // the same, published once per turn
}

// floorConn is one connection, with the bytes that the peer was not ready to take back.
type floorConn struct {
	fd      int
	pending []byte
	queued  bool // can go on without an event
	stored  stored
}

// NewFloor starts one on a free port of the loopback address.
func NewFloor() (*Floor, error) { return newFloor(nil) }

func newFloor(s *store) (*Floor, error) {
	f := &Floor{
		store: s, epoll: -1, listener: -1, stop: -1, done: make(chan error, 1),
		conns: map[int32]*floorConn{}, buf: make([]byte, floorBuffer),
	}
	if err := f.open(); err != nil {
		f.release()
		return nil, fmt.Errorf("floor: %w", err)
	}
	go func() {
		runtime.LockOSThread()
		f.done <- f.loop()
	}()
	return f, nil
}

// open makes the descriptors.
func (f *Floor) open() (err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	f.addr = l.Addr()
	if f.listener, err = load.Detach(l.(*net.TCPListener)); err != nil {
		return err
	}
	if f.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if f.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	for _, fd := range []int{f.listener, f.stop} {
		if err := f.watch(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	return nil
}

// Addr returns where it listens.
func (f *Floor) Addr() net.Addr { return f.addr }

// Syscalls returns the number of system calls of its loop.
func (f *Floor) Syscalls() uint64 { return f.syscalls.Load() }

// Close ends the loop and all connections, and returns the error that ended
// the loop before, if one did. Call it once.
func (f *Floor) Close() error {
	_, err := unix.Write(f.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if err != nil {
		return os.NewSyscallError("write", err)
	}
	err = <-f.done
	f.release()
	return err
}

func (f *Floor) release() {
	for _, c := range f.conns {
		_ = unix.Close(c.fd)
	}
	for _, fd := range []int{f.epoll, f.listener, f.stop} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// watch makes the loop wait for events of fd.
func (f *Floor) watch(fd int, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(f.epoll, unix.EPOLL_CTL_ADD, fd, &ev))
}

func (f *Floor) loop() error {
	events := make([]unix.EpollEvent, floorEvents)
	var turn, again []*floorConn // to serve now, and to serve again
	for {
		timeout := -1
		if len(again) > 0 {
			timeout = 0
		}
		n, err := unix.EpollWait(f.epoll, events, timeout)
		f.calls++
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("epoll_wait", err)
		}
		turn, again = append(turn[:0], again...), again[:0]
		for _, ev := range events[:max(n, 0)] {
			switch int(ev.Fd) {
			case f.stop:
				return nil
			case f.listener:
				if err := f.accept(); err != nil {
					return err
				}
			default:
				if c := f.conns[ev.Fd]; c != nil && !c.queued {
					turn = append(turn, c)
				}
			}
		}
		for _, c := range turn {
			c.queued = false
			switch f.echo(c) {
			case more:
				c.queued = true
				again = append(again, c)
			case ended:
				delete(f.conns, int32(c.fd))
				_ = unix.Close(c.fd)
			}
		}
		f.syscalls.Store(f.calls)
	}
}

func (f *Floor) accept() error {
	fd, _, err := unix.Accept4(f.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch err {
	case nil:
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
		return nil
	default:
		return os.NewSyscallError("accept4", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("setsockopt", err)
	}
	f.conns[int32(fd)] = &floorConn{fd: fd}
	return f.watch(fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLET)
}

// outcome says how a turn of a connection ended.
type outcome int

const (
	idle  outcome = iota // an event tells when it can go on
	more                 // it could go on now
	ended                // the peer is gone
)

// read reads what has come, or says how the turn of the connection ends.
func (f *Floor) read(fd int, p []byte) (n int, how outcome) {
	for {
		n, err := unix.Read(fd, p)
		f.calls++
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, idle
		case err != nil || n == 0:
			return 0, ended
		default:
			return n, more
		}
	}
}

// echo writes bytes of c back, a few pieces at a time so that other connections get their turn.
// While the peer does not take its bytes c is not read.
func (f *Floor) echo(c *floorConn) outcome {
	if f.store != nil {
		return f.echoStored(c)
	}
	for range floorPieces {
		if len(c.pending) > 0 {
			n, err := f.write(c.fd, c.pending)
			if err != nil {
				return ended
			}
			if c.pending = c.pending[:copy(c.pending, c.pending[n:])]; len(c.pending) > 0 {
				return idle
			}
		}
		n, how := f.read(c.fd, f.buf)
		if n == 0 {
			return how
		}
		w, err := f.write(c.fd, f.buf[:n])
		if err != nil {
			return ended
		}
		if w < n {
			c.pending = append(c.pending, f.buf[w:n]...)
			return idle
		}
		if n < len(f.buf) {
			return idle // later bytes make a new event
		}
	}
	return more
}

// write writes as much as the socket takes.
func (f *Floor) write(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Write(fd, p)
		f.calls++
		switch err {
		case nil:
			return n, nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}

const (
	// storeAhead is the size of a read where requests are small.
	storeAhead = 64 << 10
	// storeHead is the size of the first read of a request that is likely to be large: bytes
	// after its head are copied.
	storeHead = 4 << 10
	// storeLarge is the size from which on a request is large.
	storeLarge = 16 << 10
	// storeSpare bounds the buffers that are kept for the next requests.
	storeSpare = 64
)

// NewFloorStore starts a floor that delivers complete requests, like every server that gives
// messages to a user: it gathers each large request in a buffer of its own, small requests that
// come together in one, and sends them from there once they are complete. Its loop is the same.
// It is the fair bound for large messages.
func NewFloorStore() (*Floor, error) { return newFloor(&store{}) }

// store has the free buffers, the last used one at the end.
type store struct{ spare [][]byte }

func (s *store) take(n int) []byte {
	for i := len(s.spare) - 1; i >= 0; i-- {
		if b := s.spare[i]; cap(b) >= n && cap(b) <= 2*n+storeAhead {
			s.spare = append(s.spare[:i], s.spare[i+1:]...)
			return b[:n]
		}
	}
	return make([]byte, n)
}

func (s *store) give(b []byte) {
	if len(s.spare) == storeSpare {
		s.spare = append(s.spare[:0], s.spare[1:]...)
	}
	s.spare = append(s.spare, b)
}

// stored is the state of a connection.
type stored struct {
	in    []byte // a request of which a part has come, in its buffer
	have  int    // bytes of it
	head  []byte // of a request of unknown size
	out   []byte // whole requests that are sent
	sent  int    // bytes of out that are gone
	large bool   // the last request was
}

// echoStored sends complete requests, and reads on.
func (f *Floor) echoStored(c *floorConn) outcome {
	s := &c.stored
	for range floorPieces {
		for s.out != nil {
			n, err := f.write(c.fd, s.out[s.sent:])
			if err != nil {
				return ended
			}
			if s.sent += n; s.sent < len(s.out) {
				return idle
			}
			f.store.give(s.out)
			s.out, s.sent = nil, 0
		}
		to := s.in[s.have:]
		if s.in == nil {
			to = f.buf[copy(f.buf, s.head):storeAhead]
			if s.large {
				to = to[:storeHead]
			}
		}
		switch n, how := f.read(c.fd, to); {
		case n == 0:
			return how
		case s.in != nil:
			s.have += n
		default:
			f.cut(s, f.buf[:len(s.head)+n])
		}
		if s.in != nil && s.have == len(s.in) {
			s.out, s.in, s.have = s.in, nil, 0
		}
	}
	return more
}

// cut moves requests from the common buffer to their own.
func (f *Floor) cut(s *stored, p []byte) {
	s.head = s.head[:0]
	whole := wholeRequests(p)
	if whole > 0 {
		s.out = f.store.take(whole)
		copy(s.out, p)
	}
	rest := p[whole:]
	if len(rest) < requestHead {
		s.head = append(s.head, rest...)
		return
	}
	n := requestSize(rest)
	s.large = n >= storeLarge
	s.in = f.store.take(n)
	s.have = copy(s.in, rest)
}

// A request of a raw client: its length stands in the first requestHead bytes, at
// requestLength, and does not count requestRest bytes around the payload.
const (
	requestHead   = 32
	requestLength = 20
	requestRest   = 90
)

// requestSize is the size of the request that begins with head.
func requestSize(head []byte) int {
	return requestRest + int(binary.LittleEndian.Uint32(head[requestLength:]))
}

// wholeRequests is the size of the requests at the beginning of p that are whole.
func wholeRequests(p []byte) (whole int) {
	for rest := p; len(rest) >= requestHead; rest = p[whole:] {
		n := requestSize(rest)
		if n > len(rest) {
			break
		}
		whole += n
	}
	return whole
}
