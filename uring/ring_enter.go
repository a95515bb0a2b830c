//go:build !epoll

package uring

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// enter makes the one system call of a turn: it submits the queued requests, lets the
// kernel finish requests, and sleeps for at most timeout (negative: no limit) unless that
// is zero. ETIME says that the timeout passed.
func (d *ringDriver) enter(timeout time.Duration) unix.Errno {
	before := d.ring.unsubmitted()
	d.stats.Syscalls++
	d.stats.Enters++
	var errno unix.Errno
	if timeout == 0 {
		errno = d.ring.poll()
	} else {
		d.stats.Sleeps++
		errno = d.ring.sleep(timeout)
	}
	d.stats.Submitted += uint64(before - d.ring.unsubmitted())
	return errno
}

// flushUntil submits, outside Wait, until enough says so, and lets the kernel finish cancelled
// requests. If the ring breaks it gives up.
func (d *ringDriver) flushUntil(enough func() bool) {
	for range math.MaxUint8 {
		errno := d.enter(0)
		if enough() {
			return
		}
		switch errno {
		case 0, unix.EINTR:
		case unix.EAGAIN, unix.EBUSY:
			d.reap(&d.early)
		default:
			d.fail(errno)
			return
		}
	}
	d.fail(unix.EBUSY)
}

// flush implements engineRest: it empties the queue.
func (d *ringDriver) flush() {
	if d.ring.unsubmitted() > 0 {
		d.flushUntil(func() bool { return d.ring.unsubmitted() == 0 })
	}
}

// request returns the next free request; it flushes a full queue. nil means
// that the ring is broken.
func (d *ringDriver) request() (*sqe, uint32) {
	if e, i := d.ring.next(); e != nil {
		return e, i
	}
	return d.requestOfFull()
}

func (d *ringDriver) requestOfFull() (e *sqe, i uint32) {
	d.stats.SQFull++
	d.flushUntil(func() bool {
		e, i = d.ring.next()
		return e != nil
	})
	return e, i
}

// reap takes all answers, including those that the kernel kept back for lack of room.
func (d *ringDriver) reap(to *[]Completion) {
	for {
		for c := d.ring.peek(); c != nil; c = d.ring.peek() {
			user, res, flags := c.user, c.res, c.flags
			d.ring.skip()
			d.answer(to, user, res, flags)
		}
		if !d.ring.overflowed() {
			return
		}
		d.stats.Overflows++
		d.stats.Syscalls++
		d.stats.Enters++
		if errno := d.ring.events(); errno != 0 && errno != unix.EINTR {
			d.fail(errno)
			return
		}
	}
}

// settle completes the quiet sends that the kernel has taken: a failure would
// have been answered by now. Only to be called after reap.
func (d *ringDriver) settle(to *[]Completion) {
	if len(d.quiet) == 0 {
		return
	}
	taken := d.ring.made() - d.ring.unsubmitted()
	n := 0
	for _, q := range d.quiet {
		if int32(taken-q.made) <= 0 {
			break
		}
		n++
		if o := d.ops.get(q.op); o != nil && o.bits&opQuiet != 0 {
			d.complete(to, q.op, o, int32(o.vec.Size()))
		}
	}
	d.quiet = d.quiet[:copy(d.quiet, d.quiet[n:])]
}

// requeue queues operations again: the rest of transfers that the kernel cut short, and the
// sync after a write.
func (d *ringDriver) requeue(to *[]Completion) {
	for i := 0; i < len(d.again); i++ { // making room for requests may add to it
		op := d.again[i]
		o := d.ops.get(op)
		switch {
		case o == nil:
		case o.bits&opCancel != 0:
			d.sendEnded(to, op, o, -int32(unix.ECANCELED))
		case o.kind == KindSend && d.queueSend(op, o):
		case o.kind.isFile() && d.queueFile(op, o):
		default:
			d.sendEnded(to, op, o, -int32(unix.EIO))
		}
	}
	d.again = d.again[:0]
}

// armWake arms the poll of the wake-up event. The event is never read: each write is a new
// edge.
func (d *ringDriver) armWake() error {
	e, _ := d.request()
	if e == nil {
		return d.err
	}
	e.opcode = opcodePollAdd
	e.fd = int32(d.wake.fd)
	e.len = pollAddMulti
	e.opFlags = pollWord(unix.EPOLLIN | unix.EPOLLET&math.MaxUint32)
	e.user = ownWake
	d.wakeArmed = true
	return nil
}

// queueCancel asks for the end of the request with this user word.
func (d *ringDriver) queueCancel(user uint64) {
	e, _ := d.request()
	if e == nil {
		return
	}
	e.opcode = opcodeAsyncCancel
	e.addr = user
	e.user = ownNone
	e.flags = sqeCQESkip
}

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
	if !d.closed {
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
	errno := unix.Errno(-min(res, 0))
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
