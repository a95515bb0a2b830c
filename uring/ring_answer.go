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
		d.sent(to, op, o, res, flags)
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

// sent deals with an answer to a send: its result, or the notification that
// the memory of a zero-copy send is free.
func (d *ringDriver) sent(to *[]Completion, op Op, o *operation, res int32, flags uint32) {
	if flags&cqeNotification != 0 {
		o.debt--
		if d.reportUsage && uint32(res)&notificationCopied != 0 {
			o.bits |= opCopied
		}
		if o.debt == 0 && o.bits&opEnded != 0 {
			d.complete(to, op, o, o.res)
		}
		return
	}
	if flags&cqeMore != 0 {
		o.debt++
	}
	o.bits &^= opQuiet
	errno := unix.Errno(0)
	if res < 0 {
		errno = unix.Errno(-res)
	}
	switch {
	case res > 0 && o.sent+int(res) >= o.vec.Size():
		d.sendEnded(to, op, o, int32(o.vec.Size()))
	case res > 0:
		o.sent += int(res)
		o.vec.advance(int(res))
		d.again = append(d.again, op)
	case errno == unix.EAGAIN, errno == unix.EINTR:
		// A quiet send does not wait for room; another one comes back so if the
		// kernel had no memory to wait with.
		d.again = append(d.again, op)
	case o.bits&opZero != 0 && zeroCopyRefused(errno):
		o.bits &^= opZero
		d.again = append(d.again, op)
	case res == 0:
		d.sendEnded(to, op, o, -int32(unix.EIO))
	default:
		d.sendEnded(to, op, o, res)
	}
}

// zeroCopyRefused are the errors of a zero-copy send that a plain one does not
// have: no support, or too much memory pinned.
func zeroCopyRefused(errno unix.Errno) bool {
	switch errno {
	case unix.EOPNOTSUPP, unix.ENOMEM, unix.ENOBUFS, unix.EFAULT:
		return true
	}
	return false
}

// sendEnded completes a send, now or after its last notification.
func (d *ringDriver) sendEnded(to *[]Completion, op Op, o *operation, res int32) {
	if o.debt > 0 {
		o.res = res
		o.bits |= opEnded
		return
	}
	d.complete(to, op, o, res)
}

// complete delivers the final completion of op.
func (d *ringDriver) complete(to *[]Completion, op Op, o *operation, res int32) {
	var flags Flags
	if o.bits&opCopied != 0 {
		flags = Copied
	}
	if o.vec != nil {
		o.vec.rewind()
	}
	*to = append(*to, Completion{User: o.user, Op: op, Res: res, Kind: o.kind, Flags: flags})
	sock := o.sock
	d.ops.end(op)
	if len(d.shut) > 0 {
		d.fileEnded(sock)
	}
}
