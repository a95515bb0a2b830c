package uring

import (
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// begin takes a slot for an operation on s.
func (d *epollDriver) begin(kind Kind, s Socket, user uint64, v *Vec) (Op, error) {
	op, err := d.start(kind, s, user, v)
	if err == nil {
		d.stats.Submitted++
	}
	return op, err
}

// Arm implements Driver.
func (d *epollDriver) Arm(k Kind, s Socket, user uint64) (Op, error) {
	op, err := d.begin(k, s, user, nil)
	switch {
	case err != nil:
		return 0, err
	case k == KindAccept:
		d.states[s.FD()].accepts = true
		// Connections may be waiting for which no event comes any more: after a
		// failure with EMFILE, for example.
		d.accepting = append(d.accepting, op)
	case d.states[s.FD()].seen:
		// The edge may have come before. Registering again makes the kernel look
		// and, if there is something, report it as a new edge.
		if errno := d.register(unix.EPOLL_CTL_MOD, s); errno != 0 {
			d.ops.end(op)
			return 0, fmt.Errorf("epoll: re-arm: %w", errno)
		}
	}
	return op, nil
}

func (d *epollDriver) Connect(local, to netip.AddrPort, opt SocketOptions, user uint64) (Socket, Op, error) {
	fd, sa, size, err := d.dial(local, to, opt)
	if err != nil {
		return Socket{}, 0, err
	}
	d.stats.Syscalls++
	// Before it is watched, as it would be said to have hung up. EINTR cannot happen: the socket does not block.
	_, _, connectErrno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(size))
	s, err := d.own(fd, asSocket)
	if err != nil {
		return Socket{}, 0, err
	}
	op, err := d.begin(KindConnect, s, user, nil)
	if err != nil {
		d.Close(s)
		return Socket{}, 0, err
	}
	if connectErrno != unix.EINPROGRESS {
		d.finish(op, -int32(connectErrno))
	}
	return s, op, nil
}

func (d *epollDriver) Send(s Socket, v *Vec, user uint64, _ SendFlags) (bool, Op, error) {
	if err := d.sendable(s, v); err != nil {
		return false, 0, err
	}
	for op := d.ops.first(s.FD()); op != 0; op = d.ops.after(op) {
		if d.ops.get(op).kind == KindSend {
			return false, 0, fmt.Errorf("epoll: a send is in flight on this socket: %w", unix.EBUSY)
		}
	}
	sent, errno := d.transmit(s.FD(), v)
	if errno == 0 && sent == v.Size() {
		d.stats.Submitted++
		v.rewind()
		return true, 0, nil
	}
	op, err := d.begin(KindSend, s, user, v)
	if err != nil {
		v.rewind()
		return false, 0, err
	}
	d.ops.get(op).sent = sent
	if errno != 0 && errno != unix.EAGAIN {
		d.finish(op, -int32(errno))
	}
	return false, op, nil
}

// transmit sends as much of the rest of v as the socket's buffer takes. A short count means
// that the buffer is full; the kernel reports an edge when it has room again.
func (d *epollDriver) transmit(fd int, v *Vec) (int, unix.Errno) {
	if v.Size() == 0 {
		return 0, 0
	}
	for {
		d.stats.Syscalls++
		n, errno := v.send(fd)
		if errno == unix.EINTR {
			continue
		}
		if errno == 0 {
			v.advance(n)
		}
		return n, errno
	}
}

func (d *epollDriver) Cancel(op Op) {
	if o := d.ops.get(op); o != nil && o.kind.isFile() {
		d.cancelFile(op, o)
		return
	}
	d.finish(op, -int32(unix.ECANCELED))
}

// admit implements engineRest. Files are no part of the epoll set.
func (d *epollDriver) admit(fd int, as use) (Socket, error) {
	if as == asFile || as == asDirectFile {
		if err := d.openFiles(fd, as == asDirectFile); err != nil {
			return Socket{}, err
		}
		return d.named(fd), nil
	}
	s := d.named(fd)
	if errno := d.register(unix.EPOLL_CTL_ADD, s); errno != 0 {
		return Socket{}, errno
	}
	return s, nil
}

// leave implements engineRest. The epoll set loses a file whose last descriptor is closed by itself.
func (d *epollDriver) leave(s Socket, closes bool) unix.Errno {
	if closes && !d.states[s.FD()].accepts {
		return 0
	}
	return d.register(unix.EPOLL_CTL_DEL, s)
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
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(d.epfd), uintptr(ctl), uintptr(s.FD()), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return errno
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

// Release has no effect: Arm lends no buffers.
func (d *epollDriver) Release(Buffer) {}
