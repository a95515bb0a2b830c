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
	if o.kind == KindSend {
		o.vec.rewind()
		if sock := d.sock(o.sock); sock != nil {
			sock.sending = false
		}
	}
	if o.kind.transfers() {
		o.vec.rewind()
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

func (d *epollDriver) Accept(s Socket, user uint64) (Op, error) {
	op, err := d.start(KindAccept, s, user, nil)
	if err != nil {
		return 0, err
	}
	// Connections may be waiting for which no event comes any more: after a
	// failure with EMFILE, for example.
	d.accepting = append(d.accepting, op)
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

func (d *epollDriver) Ready(s Socket, user uint64) (Op, error) {
	op, err := d.start(KindReady, s, user, nil)
	if err != nil {
		return 0, err
	}
	sock := &d.states[s.FD()]
	if !sock.seen {
		return op, nil
	}
	// The edge may have come before. Registering again makes the kernel look
	// and, if there is something, report it as a new edge.
	if errno := d.register(unix.EPOLL_CTL_MOD, s); errno != 0 {
		d.ops.end(op)
		return 0, fmt.Errorf("epoll: re-arm: %w", errno)
	}
	return op, nil
}

func (d *epollDriver) Send(s Socket, v *Vec, user uint64, _ bool) (bool, Op, error) {
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
