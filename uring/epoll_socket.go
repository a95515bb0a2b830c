package uring

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// sock is the state behind s, or nil if s is not open here (any more).
func (d *epollDriver) sock(s Socket) *epollState {
	if !d.isOpen(s) {
		return nil
	}
	return &d.states[s.FD()]
}

// Listen implements Driver.
func (d *epollDriver) Listen(addr netip.AddrPort, opt ListenOptions) (Socket, error) {
	fd, err := d.listen(addr, opt)
	if err != nil {
		return Socket{}, err
	}
	return d.adoptOrClose(fd)
}

// adoptOrClose is Adopt for a descriptor that only this driver has.
func (d *epollDriver) adoptOrClose(fd int) (Socket, error) {
	s, err := d.Adopt(fd)
	if err != nil {
		d.closeFD(fd)
	}
	return s, err
}

// Adopt implements Driver.
func (d *epollDriver) Adopt(fd int) (Socket, error) {
	if err := d.adoptable(fd); err != nil {
		return Socket{}, err
	}
	s := d.named(fd)
	if errno := d.register(unix.EPOLL_CTL_ADD, s); errno != 0 {
		return Socket{}, fmt.Errorf("epoll: adopt descriptor %d: %w", fd, errno)
	}
	d.track(s)
	return s, nil
}

// named begins the state of a descriptor, and gives it a generation of its own.
func (d *epollDriver) named(fd int) Socket {
	if n := fd + 1 - len(d.states); n > 0 {
		d.states = append(d.states, make([]epollState, n)...)
	}
	gen := max(1, d.states[fd].gen+1) // it wraps; 0 is the wake-up's
	d.states[fd] = epollState{gen: gen}
	return Socket{fd: int32(fd) + 1, fixed: gen}
}

// register tells the kernel to report s, with its generation.
func (d *epollDriver) register(ctl int, s Socket) unix.Errno {
	d.stats.Syscalls++
	ev := unix.EpollEvent{Events: epollMask, Fd: int32(s.FD()), Pad: s.fixed}
	return rawEpollCtl(d.epfd, ctl, s.FD(), &ev)
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

// Close implements Driver.
func (d *epollDriver) Close(s Socket) {
	if d.isOpen(s) {
		d.cancelOn(s.FD())
		d.shed(s)
	}
}

// shed implements engineRest. The epoll set loses the descriptor as well.
func (d *epollDriver) shed(s Socket) {
	d.socks[s.FD()] = Socket{}
	d.closeFD(s.FD())
}

func (d *epollDriver) closeFD(fd int) {
	d.stats.Syscalls++
	unix.Close(fd)
}

// Detach implements Driver. The descriptor lives on, so that it has to be taken
// out of the epoll set by name.
func (d *epollDriver) Detach(s Socket) (int, error) {
	if err := d.detachable(s); err != nil {
		return -1, err
	}
	if errno := d.register(unix.EPOLL_CTL_DEL, s); errno != 0 {
		return -1, fmt.Errorf("epoll: detach descriptor %d: %w", s.FD(), errno)
	}
	d.socks[s.FD()] = Socket{}
	return s.FD(), nil
}
