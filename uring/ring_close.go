//go:build !epoll

package uring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CloseDriver implements Driver.
func (d *ringDriver) CloseDriver() error {
	if d.state != stateOpen {
		return nil
	}
	d.cancelAll()
	d.closeSockets()
	d.state = stateClosing
	if !d.drain() {
		// Unmapping now would let the kernel write where others allocate.
		d.wake.close()
		d.state = stateClosed
		return fmt.Errorf("close ring: the kernel still holds %d operations; their memory is not freed: %w",
			d.ops.inFlight, unix.EBUSY)
	}
	return d.release()
}

func (d *ringDriver) cancelAll() {
	for op, i := d.ops.live(0); op != 0; op, i = d.ops.live(i) {
		d.Cancel(op)
	}
	if d.wakeArmed {
		d.queueCancel(ownWake)
	}
	d.flushAll()
}

func (d *ringDriver) closeSockets() {
	for op, i := d.ops.live(0); op != 0; op, i = d.ops.live(i) {
		o := d.ops.get(op)
		if o.bits&opZero != 0 && d.isOpen(o.sock) {
			// No caller waits for this send: reset, or its memory stays pinned
			// while the peer is silent.
			_ = unix.SetsockoptLinger(o.sock.FD(), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
	}
	for fd, s := range d.socks {
		switch o := d.ops.get(d.ops.first(fd)); {
		case !s.Valid():
		case o != nil && o.kind.isFile():
			d.shutFile(fd)
		default:
			d.Close(s)
		}
	}
}

// drain waits until no operation is in flight. It returns false if some stay.
func (d *ringDriver) drain() bool {
	for step := 0; ; {
		d.out = d.out[:0]
		d.reap(&d.out)
		d.settle(&d.out)
		d.requeue(&d.out)
		closeAccepted(d.out)
		closeAccepted(d.early)
		d.early = d.early[:0]
		if d.ops.inFlight == 0 && !d.wakeArmed {
			return true
		}
		if d.err != nil || step == closeSteps {
			return false
		}
		switch errno := d.enter(closeStep); errno {
		case 0, unix.EINTR: // an operation has ended, and others go on
		case unix.ETIME, unix.EAGAIN, unix.EBUSY:
			step++
		default:
			d.fail(errno)
		}
	}
}

// closeAccepted closes accepted connections that were not delivered.
func closeAccepted(list []Completion) {
	for i := range list {
		if c := &list[i]; c.Kind == KindAccept && c.Res >= 0 {
			_ = unix.Close(int(c.Res))
		}
	}
}
