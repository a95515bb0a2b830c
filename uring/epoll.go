package uring

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// acceptBudget bounds the connections that one Wait takes from one listener, so that a
	// flood of them does not starve the others.
	acceptBudget = 64

	// epollEvents bounds the sockets that one epoll_wait reports.
	epollEvents = 256

	// epollMask are the events of every socket, registered once. They are
	// edge-triggered, so that no operation costs an epoll_ctl. The kernel adds
	// EPOLLERR and EPOLLHUP.
	epollMask = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1)

	// epollReadable are the events that a reader must see: after each of them
	// a read returns bytes, the end of the stream, or the error.
	epollReadable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

	// epollWritable are the events after which connecting or sending makes
	// progress or fails.
	epollWritable = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
)

// featurePwait2, timeouts below the millisecond, is the only optional ability
// of the reactor; a name as in Info.
const featurePwait2 = "epoll_pwait2"

// epollDriver is the reactor behind the calls of Driver: the kernel reports
// readiness, and the system calls that the ring would make in the kernel are
// made here, at once by Send and Recv, or when Wait sees the edge.
type epollDriver struct {
	engine
	states []epollState // by descriptor
	epfd   int

	// accepting are the accepts to try in the next Wait: just armed, or cut
	// off by the budget. Wait does not sleep while there are any.
	accepting []Op

	events  []unix.EpollEvent
	timeout kernelTimespec // for the kernel to read
	pwait2  bool
	disk    diskEngine
}

// epollState is the state of one descriptor.
type epollState struct {
	// gen tells the sockets and files that had this number apart, in the event data and
	// in Socket.fixed (a reactor has no file table), so that neither a late
	// event nor a handle kept after Close reaches a later one.
	gen int32
	// seen: the first event since registration has been taken. Before that, the kernel still
	// holds an event for each ready direction.
	seen bool
	// accepts: it is a listener, which other processes may have, too.
	accepts bool
	// refused: a file has no RWF_NOWAIT for reads, and for writes.
	refused [2]bool
}

// openEpoll opens the reactor. fallback says why there is no ring, if one was
// wished for.
func openEpoll(cfg Config, fallback string) (Driver, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: create: %w", err)
	}
	d := &epollDriver{
		engine: engine{name: "epoll", info: Info{Backend: Epoll, Fallback: fallback}},
		epfd:   epfd,
		events: make([]unix.EpollEvent, epollEvents),
	}
	d.rest = d
	d.stats.Syscalls++
	if err := d.watch(&d.wake, wakeGen); err != nil {
		unix.Close(epfd)
		return nil, err
	}
	d.disk.pool.limit = cmp.Or(cfg.tests.FileWorkers, defaultWorkers)
	direct := Feature{Name: featureAIO, Since: "4.18", Why: "tried with the first file that has direct I/O"}
	if slices.Contains(cfg.tests.Off, featureAIO) {
		direct.Why = whyOff
	}
	d.info.Features = []Feature{d.probePwait2(cfg.tests.Off), direct}
	return d, nil
}

// Events of the two eventfds have generations that are no socket's.
const (
	wakeGen = 0  // of Wake
	fileGen = -1 // of requests on files that have ended
)

// watch opens w and has its events reported: edge-triggered, so that the counter need not be
// read.
func (d *epollDriver) watch(w *waker, gen int32) error {
	fd, err := w.open()
	if err != nil {
		return fmt.Errorf("epoll: eventfd: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&(1<<32-1), Fd: int32(fd), Pad: gen}
	if err := unix.EpollCtl(d.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		w.close()
		return fmt.Errorf("epoll: register eventfd: %w", err)
	}
	d.stats.Syscalls += 2
	return nil
}

// probePwait2 finds out whether waits can have a resolution below the
// millisecond.
func (d *epollDriver) probePwait2(off []string) Feature {
	f := Feature{Name: featurePwait2, Since: "5.11"}
	if slices.Contains(off, f.Name) {
		f.Why = whyOff
		return f
	}
	d.pwait2 = true
	if _, errno := d.epollWait(0); errno != 0 {
		d.pwait2 = false
		f.Why = errno.Error()
	}
	f.Have = d.pwait2
	d.stats = Stats{Syscalls: d.stats.Syscalls} // the probe is no turn of the loop
	return f
}

// Stats implements Driver.
func (d *epollDriver) Stats() Stats {
	s := d.engine.Stats()
	s.Syscalls += d.disk.ended.writes.Load()
	return s
}

// turn implements engineRest: events, then accepts.
func (d *epollDriver) turn(timeout time.Duration) (expired bool) {
	if len(d.accepting) > 0 {
		timeout = 0
	}
	d.submitAIO()
	n, errno := d.epollWait(timeout)
	if errno != 0 && errno != unix.EINTR {
		d.err = fmt.Errorf("epoll: wait: %w", errno)
		return false
	}
	for i := range n {
		d.dispatch(&d.events[i])
	}
	d.acceptTurn()
	return false // the caller looks at the time, as a wait may end early
}

// flush, stop and idle implement engineRest: the reactor makes each request at once, and has
// none of its own.
func (d *epollDriver) flush()     {}
func (d *epollDriver) stop()      {}
func (d *epollDriver) idle() bool { return true }

// release implements engineRest.
func (d *epollDriver) release(kept bool) error {
	d.disk.pool.stop(!kept)
	if !kept {
		if d.disk.aio != nil {
			_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, d.disk.aio.ctx, 0, 0)
		}
		d.disk.ended.close()
	}
	d.stats.Syscalls++
	if err := unix.Close(d.epfd); err != nil {
		return fmt.Errorf("epoll: close: %w", err)
	}
	return nil
}

// dispatch serves one event.
func (d *epollDriver) dispatch(ev *unix.EpollEvent) {
	if ev.Pad == wakeGen {
		d.wake.lower()
		d.stats.Wakes++
		d.woken = true
		return
	}
	if ev.Pad == fileGen {
		d.collectFiles()
		return
	}
	fd := int(ev.Fd)
	if !d.isOpen(Socket{fd: ev.Fd + 1, fixed: ev.Pad}) {
		d.stats.Stale++
		return
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
			if ev.Events&epollReadable != 0 && !slices.Contains(d.accepting, op) {
				d.accepting = append(d.accepting, op)
			}
		case KindConnect:
			if ev.Events&epollWritable != 0 {
				d.complete(&d.out, op, o, -int32(d.connectResult(fd)))
			}
		}
		op = next
	}
}

func (d *epollDriver) resumeSend(op Op, o *operation) {
	n, errno := d.transmit(o.sock.FD(), o.vec)
	o.sent += n
	switch {
	case errno == unix.EAGAIN, errno == 0 && o.sent < o.vec.Size():
	case errno == 0:
		d.complete(&d.out, op, o, int32(o.sent))
	default:
		d.complete(&d.out, op, o, -int32(errno))
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
		fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(o.sock.FD()), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
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
			d.complete(&d.out, op, o, -int32(errno))
			return false
		}
	}
	return true
}
