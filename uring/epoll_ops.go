package uring

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// start takes an operation slot on an open socket.
func (d *epollDriver) start(kind Kind, s Socket, user uint64, v *Vec) (Op, error) {
	if err := d.usable(s); err != nil {
		return 0, err
	}
	op, ok := d.ops.add(kind, s, user, v)
	if !ok {
		return 0, errTooMany
	}
	d.stats.Submitted++
	return op, nil
}

// end frees the slot of op, which get found, and makes its final completion.
func (d *epollDriver) end(op Op, o *operation, res int32) Completion {
	c := Completion{User: o.user, Op: op, Kind: o.kind, Res: res}
	if o.vec != nil {
		o.vec.rewind()
	}
	if sock := d.sock(o.sock); sock != nil && o.kind == KindSend {
		sock.sending = false
	}
	sock := o.sock
	d.ops.end(op)
	if len(d.shut) > 0 {
		d.fileEnded(sock)
	}
	return c
}

// finish implements engineRest.
func (d *epollDriver) finish(op Op, res int32) {
	if o := d.ops.get(op); o != nil {
		d.pending = append(d.pending, d.end(op, o, res))
	}
}

// Arm implements Driver. A reactor has no buffers to receive into.
func (d *epollDriver) Arm(k Kind, s Socket, user uint64) (Op, error) {
	if k == KindReceive {
		return 0, errNoReceive
	}
	op, err := d.start(k, s, user, nil)
	switch {
	case err != nil:
		return 0, err
	case k == KindAccept:
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
	connectErrno := rawConnect(fd, sa[:size]) // before it is watched, as it would be said to have hung up
	s, err := d.adoptOrClose(fd)
	if err != nil {
		return Socket{}, 0, err
	}
	op, err := d.start(KindConnect, s, user, nil)
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
	if err := d.usable(s); err != nil {
		return false, 0, err
	}
	sock := &d.states[s.FD()]
	if sock.sending {
		return false, 0, fmt.Errorf("epoll: a send is in flight on this socket: %w", unix.EBUSY)
	}
	sent, errno := d.transmit(s.FD(), v)
	if errno == 0 && sent == v.Size() {
		d.stats.Submitted++
		v.rewind()
		return true, 0, nil
	}
	op, err := d.start(KindSend, s, user, v)
	if err != nil {
		v.rewind()
		return false, 0, err
	}
	sock.sending = true
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

// Release has no effect: Arm lends no buffers.
func (d *epollDriver) Release(Buffer) {}

func (d *epollDriver) EndWriting(s Socket) {
	if d.sock(s) != nil {
		d.stats.Syscalls++
		_ = unix.Shutdown(s.FD(), unix.SHUT_WR) // fails only without a peer, where no direction is left to end
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
