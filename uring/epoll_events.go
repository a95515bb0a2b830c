package uring

import (
	"slices"

	"golang.org/x/sys/unix"
)

// dispatch serves one event and says whether it was the wake-up.
func (d *epollDriver) dispatch(ev *unix.EpollEvent) (woken bool) {
	if ev.Pad == 0 {
		d.wake.lower()
		d.stats.Wakes++
		return true
	}
	if ev.Pad == fileGen {
		d.collectFiles(&d.out)
		return false
	}
	fd := int(ev.Fd)
	if !d.isOpen(Socket{fd: ev.Fd + 1, fixed: ev.Pad}) {
		d.stats.Stale++
		return false
	}
	d.states[fd].seen = true
	for op := d.ops.first(fd); op != 0; {
		o, next := d.ops.get(op), d.ops.after(op)
		switch o.kind {
		case KindReady:
			if mask := ev.Events & epollReadable; mask != 0 {
				d.out = append(d.out, Completion{User: o.user, Op: op, Kind: KindReady, Res: int32(mask), Flags: More})
			}
		case KindSend:
			if ev.Events&epollWritable != 0 {
				d.resumeSend(op, o)
			}
		case KindAccept:
			if ev.Events&epollReadable != 0 {
				d.queueAccept(op)
			}
		case KindConnect:
			if ev.Events&epollWritable != 0 {
				d.out = append(d.out, d.end(op, o, -int32(d.connectResult(fd))))
			}
		}
		op = next
	}
	return false
}

func (d *epollDriver) resumeSend(op Op, o *operation) {
	n, errno := d.transmit(o.sock.FD(), o.vec)
	o.sent += n
	switch {
	case errno == unix.EAGAIN, errno == 0 && o.sent < o.vec.Size():
	case errno == 0:
		d.out = append(d.out, d.end(op, o, int32(o.sent)))
	default:
		d.out = append(d.out, d.end(op, o, -int32(errno)))
	}
}

func (d *epollDriver) queueAccept(op Op) {
	if !slices.Contains(d.accepting, op) {
		d.accepting = append(d.accepting, op)
	}
}

// acceptTurn serves the accepts that have, or may have, waiting connections. Accepts that used
// up their budget stay for the next turn.
func (d *epollDriver) acceptTurn() {
	keep := d.accepting[:0]
	for _, op := range d.accepting {
		if d.acceptSome(op) {
			keep = append(keep, op)
		}
	}
	d.accepting = keep
}

// acceptSome says whether there may be more.
func (d *epollDriver) acceptSome(op Op) bool {
	o := d.ops.get(op)
	if o == nil {
		return false // cancelled meanwhile
	}
	for range acceptBudget {
		d.stats.Syscalls++
		fd, errno := rawAccept(o.sock.FD())
		switch errno {
		case 0:
			d.out = append(d.out, Completion{User: o.user, Op: op, Kind: KindAccept, Res: int32(fd), Flags: More})
		case unix.EAGAIN:
			return false
		case unix.ECONNABORTED, unix.EINTR:
			// This connection has ended already; the next one may
			// be good.
		default:
			// Out of descriptors, or the listener is shut down. The caller
			// decides when to try again: repeating it here would spin.
			d.out = append(d.out, d.end(op, o, -int32(errno)))
			return false
		}
	}
	return true
}
