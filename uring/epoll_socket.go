package uring

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// sock is the state behind s, or nil if s is not open here (any more).
func (d *epollDriver) sock(s Socket) *epollSock {
	fd := s.FD()
	if fd < 0 || fd >= len(d.socks) {
		return nil
	}
	if e := &d.socks[fd]; e.open && e.gen == s.fixed {
		return e
	}
	return nil
}

func (d *epollDriver) Listen(addr netip.AddrPort, opt ListenOptions) (Socket, error) {
	if d.stopped {
		return Socket{}, fmt.Errorf("epoll: listen: %w", net.ErrClosed)
	}
	fd, err := listenTCP(addr, opt)
	if err != nil {
		return Socket{}, fmt.Errorf("epoll: %w", err)
	}
	d.stats.Syscalls += socketCalls(opt.SocketOptions) + 3 // SO_REUSEADDR, bind, listen
	if opt.ReusePort || opt.Exclusive {
		d.stats.Syscalls++
	}
	s, err := d.Adopt(fd)
	if err != nil {
		d.closeFD(fd)
		return Socket{}, err
	}
	return s, nil
}

// socketCalls is the number of system calls that openTCP makes.
func socketCalls(opt SocketOptions) uint64 {
	n := uint64(2) // the first option is always set
	for _, set := range [...]bool{opt.SendBuffer > 0, opt.ReceiveBuffer > 0} {
		if set {
			n++
		}
	}
	return n
}

func (d *epollDriver) Adopt(fd int) (Socket, error) {
	if d.stopped {
		return Socket{}, fmt.Errorf("epoll: adopt: %w", net.ErrClosed)
	}
	if fd < 0 || fd >= math.MaxInt32 {
		return Socket{}, fmt.Errorf("epoll: adopt descriptor %d: %w", fd, unix.EBADF)
	}
	if fd >= len(d.socks) {
		d.socks = append(d.socks, make([]epollSock, fd+1-len(d.socks))...)
	}
	e := &d.socks[fd]
	if e.open || fd < len(d.disk.files) && (d.disk.files[fd].open || d.disk.files[fd].shut) {
		return Socket{}, fmt.Errorf("epoll: adopt descriptor %d: %w", fd, unix.EEXIST)
	}
	gen := e.gen + 1
	if gen <= 0 { // wrapped; 0 is the wake-up's
		gen = 1
	}
	s := Socket{fd: int32(fd) + 1, fixed: gen}
	if errno := d.register(unix.EPOLL_CTL_ADD, s); errno != 0 {
		return Socket{}, fmt.Errorf("epoll: adopt descriptor %d: %w", fd, errno)
	}
	*e = epollSock{gen: gen, open: true}
	return s, nil
}

// register tells the kernel to report s, with its generation.
func (d *epollDriver) register(ctl int, s Socket) unix.Errno {
	d.stats.Syscalls++
	ev := unix.EpollEvent{Events: epollMask, Fd: int32(s.FD()), Pad: s.fixed}
	return rawEpollCtl(d.epfd, ctl, s.FD(), &ev)
}

// startConnect opens, binds and begins to connect a socket. The errno is that
// of connect: EINPROGRESS as a rule.
func (d *epollDriver) startConnect(local, to netip.AddrPort, opt SocketOptions) (int, unix.Errno, error) {
	if d.stopped {
		return -1, 0, fmt.Errorf("epoll: connect: %w", net.ErrClosed)
	}
	var sa [sockaddrSize]byte
	size, err := putSockaddr(&sa, to)
	if err != nil {
		return -1, 0, fmt.Errorf("epoll: connect to %v: %w", to, err)
	}
	fd, err := dialTCP(local, to, opt)
	if err != nil {
		return -1, 0, fmt.Errorf("epoll: connect to %v: %w", to, err)
	}
	d.stats.Syscalls += socketCalls(opt) + 1
	if local.IsValid() {
		d.stats.Syscalls += 2 // an option, and bind
	}
	return fd, rawConnect(fd, sa[:size]), nil
}

// connectResult is called at the first EPOLLOUT, EPOLLHUP or EPOLLERR.
func (d *epollDriver) connectResult(fd int) unix.Errno {
	d.stats.Syscalls += 2
	soerr, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && soerr != 0 {
		return unix.Errno(soerr)
	}
	// An error that another call has taken leaves a socket without a peer.
	if _, err := unix.Getpeername(fd); err != nil {
		errno, _ := err.(unix.Errno)
		return errno
	}
	return 0
}

func (d *epollDriver) Recv(s Socket, p []byte) (int, unix.Errno) {
	if d.sock(s) == nil {
		return 0, unix.EBADF
	}
	d.stats.Syscalls++
	return recvNow(s.FD(), p)
}

func (d *epollDriver) Recvv(s Socket, p, q []byte) (int, unix.Errno) {
	if d.sock(s) == nil {
		return 0, unix.EBADF
	}
	d.stats.Syscalls++
	return recvvNow(s.FD(), p, q)
}

var errNoReceive = fmt.Errorf("epoll: receive into the driver's buffers: %w", errors.ErrUnsupported)

// Receive is the ring's: a reactor has no buffers of its own.
func (d *epollDriver) Receive(Socket, uint64) (Op, error) { return 0, errNoReceive }

// Release has no effect: Receive lends no buffers.
func (d *epollDriver) Release(Buffer) {}

func (d *epollDriver) Shutdown(s Socket) {
	if d.sock(s) != nil {
		d.stats.Syscalls++
		_ = unix.Shutdown(s.FD(), unix.SHUT_RDWR) // fails only without a peer, where no direction is left to end
	}
}

func (d *epollDriver) Close(s Socket) {
	e := d.sock(s)
	if e == nil {
		return
	}
	fd := s.FD()
	for op := d.ops.first(fd); op != 0; op = d.ops.first(fd) {
		d.finish(op, -int32(unix.ECANCELED))
	}
	e.open = false
	d.closeFD(fd) // takes it out of the epoll set as well
}

func (d *epollDriver) closeFD(fd int) {
	d.stats.Syscalls++
	unix.Close(fd)
}

func (d *epollDriver) LocalAddr(s Socket) netip.AddrPort { return d.address(s, LocalAddr) }

func (d *epollDriver) PeerAddr(s Socket) netip.AddrPort { return d.address(s, peerAddr) }

func (d *epollDriver) address(s Socket, ask func(int) netip.AddrPort) netip.AddrPort {
	if d.sock(s) == nil {
		return netip.AddrPort{}
	}
	d.stats.Syscalls++
	return ask(s.FD())
}

// Detach implements Driver. The descriptor lives on, so that it has to be taken
// out of the epoll set by name.
func (d *epollDriver) Detach(s Socket) (int, error) {
	e := d.sock(s)
	if e == nil {
		return -1, fmt.Errorf("epoll: detach: no such socket: %w", unix.EBADF)
	}
	fd := s.FD()
	if d.ops.first(fd) != 0 {
		return -1, fmt.Errorf("epoll: detach descriptor %d: %w", fd, unix.EBUSY)
	}
	if errno := d.register(unix.EPOLL_CTL_DEL, s); errno != 0 {
		return -1, fmt.Errorf("epoll: detach descriptor %d: %w", fd, errno)
	}
	e.open = false
	return fd, nil
}
