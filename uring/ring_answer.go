//go:build !epoll

package uring

import "golang.org/x/sys/unix"

// answer deals with one completion of the kernel. It queues no request: the
// queue may be full, and flushing it would come back here.
func (d *ringDriver) answer(to *[]Completion, user uint64, res int32, flags uint32) {
	if user&ownBit != 0 {
		d.ownAnswer(user, flags)
		return
	}
	op := Op(user)
	o := d.ops.get(op)
	if o == nil {
		d.stats.Stale++
		return
	}
	if o.kind == KindSend {
		d.sent(to, op, o, res)
		return
	}
	if o.kind.isFile() {
		d.fileAnswer(to, op, o, res)
		return
	}
	c := Completion{User: o.user, Op: op, Res: res, Kind: o.kind}
	if flags&cqeBuffer != 0 && d.buffers != nil {
		c.Data, c.Buf = d.buffers.take(flags, int(res))
	}
	switch {
	case flags&cqeMore != 0:
		c.Flags = More
	default:
		if res == -int32(unix.ENOBUFS) && o.kind == KindReceive {
			d.stats.NoBuffers++
		}
		d.ops.end(op)
	}
	*to = append(*to, c)
}

// ownAnswer deals with an answer to a request of the driver itself.
func (d *ringDriver) ownAnswer(user uint64, flags uint32) {
	if user != ownWake {
		return
	}
	d.wakeArmed = flags&cqeMore != 0
	if d.state == stateOpen {
		d.wake.lower()
		d.woken = true
		d.stats.Wakes++
	}
}

// sent deals with the result of a send.
func (d *ringDriver) sent(to *[]Completion, op Op, o *operation, res int32) {
	o.bits &^= opQuiet
	errno := unix.Errno(0)
	if res < 0 {
		errno = unix.Errno(-res)
	}
	switch {
	case res > 0 && o.sent+int(res) >= o.vec.Size():
		d.complete(to, op, o, int32(o.vec.Size()))
	case res > 0:
		o.sent += int(res)
		o.vec.advance(int(res))
		d.again = append(d.again, op)
	case errno == unix.EAGAIN, errno == unix.EINTR:
		// A quiet send does not wait for room; another one comes back so if the
		// kernel had no memory to wait with.
		d.again = append(d.again, op)
	case res == 0:
		d.complete(to, op, o, -int32(unix.EIO))
	default:
		d.complete(to, op, o, res)
	}
}

// complete delivers the final completion of op.
func (d *ringDriver) complete(to *[]Completion, op Op, o *operation, res int32) {
	if o.vec != nil {
		o.vec.rewind()
	}
	*to = append(*to, Completion{User: o.user, Op: op, Res: res, Kind: o.kind})
	sock := o.sock
	d.ops.end(op)
	if len(d.shut) > 0 {
		d.fileEnded(sock)
	}
}
