//go:build !epoll

package uring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// whyOld is the reason where the kernel answers like one without the feature.
const whyOld = "this kernel does not have it"

// probe tries the features that set-up does not show. It aims operations at the wake-up
// event, which is no socket: a kernel that knows an operation returns ENOTSOCK.
func (d *ringDriver) probe(set featureSet) {
	switch {
	case !set.wanted(featureRegisteredRing):
	case !canRegisterRing:
		set.lacks(featureRegisteredRing, "giouring cannot undo it")
	default:
		if errno := d.ring.registerRing(); errno != 0 {
			set.lacks(featureRegisteredRing, errno.Error())
		} else {
			set.found(featureRegisteredRing)
		}
	}
	d.probeSkip(set)
	d.probeOperation(set, featureAcceptMulti, func(e *sqe) {
		e.opcode, e.ioprio = opcodeAccept, acceptMultishot
	})
	d.probeOperation(set, featureRecvMulti, func(e *sqe) {
		e.opcode, e.ioprio, e.flags = opcodeRecv, recvMultishot, sqeBufferSelect
	})
	d.probeSendZC(set)
}

func (d *ringDriver) probeSendZC(set featureSet) {
	v, err := NewVec(1)
	if err != nil {
		set.lacks(featureSendZC, err.Error())
		set.lacks(featureReportUsage, err.Error())
		return
	}
	defer v.Free()
	sendZC := func(ioprio uint16) func(*sqe) {
		return func(e *sqe) {
			e.opcode, e.ioprio, e.len = opcodeSendmsgZC, ioprio, 1
			e.addr = uint64(v.message())
		}
	}
	d.probeOperation(set, featureSendZC, sendZC(0))
	if !set.have(featureSendZC) {
		set.lacks(featureReportUsage, "needs "+featureSendZC)
	}
	d.probeOperation(set, featureReportUsage, sendZC(sendZCReportUsage))
}

// closeWait bounds the wait of the trial below for the end of a file.
const closeWait = 10 // ms

// closesAtOnce says whether the kernel closes a file that has left the table while a
// request on another place is under way. Kernels before 6.13, by their source, keep it
// until the end of that request: a peer would not notice our close while an older
// connection lives.
func (d *ringDriver) closesAtOnce(f *files) bool {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return false
	}
	defer unix.Close(pipe[0])
	pending, gone := f.add(d.ring, d.wake.fd), f.add(d.ring, pipe[1])
	if pending > 0 {
		e, _ := d.ring.next()
		e.opcode, e.opFlags = opcodePollAdd, pollWord(unix.EPOLLIN) // the event was not raised
		e.fd, e.flags, e.user = pending-1, sqeFixedFile, ownProbe
		_ = d.ring.poll() // the end below submits the rest
	}
	if gone > 0 {
		f.remove(d.ring, gone)
	}
	_ = unix.Close(pipe[1])
	ends := []unix.PollFd{{Fd: int32(pipe[0]), Events: unix.POLLIN}}
	n, err := unix.Poll(ends, closeWait)
	for err == unix.EINTR {
		n, err = unix.Poll(ends, closeWait)
	}
	if pending > 0 {
		e, _ := d.ring.next()
		e.opcode, e.fd, e.addr, e.user = opcodeAsyncCancel, -1, ownProbe, ownProbe
		_, _, _ = d.ask()
		f.remove(d.ring, pending)
	}
	return n == 1 && ends[0].Revents&unix.POLLHUP != 0
}

func (d *ringDriver) probeOperation(set featureSet, name string, fill func(*sqe)) {
	if !set.wanted(name) {
		return
	}
	e, _ := d.ring.next()
	fill(e)
	e.fd = int32(d.wake.fd)
	e.user = ownProbe
	switch res, n, errno := d.ask(); {
	case errno != 0:
		set.lacks(name, fmt.Sprintf("io_uring_enter: %v", errno))
	case n > 0 && res == -int32(unix.ENOTSOCK):
		set.found(name)
	case n > 0 && res == -int32(unix.EINVAL):
		set.lacks(name, whyOld)
	default:
		set.lacks(name, fmt.Sprintf("unexpected answer %d to the trial", res))
	}
}

// probeSkip sends a request that succeeds: without an answer the feature works.
func (d *ringDriver) probeSkip(set featureSet) {
	if !set.wanted(featureCQESkip) {
		return
	}
	e, _ := d.ring.next()
	e.opcode, e.flags, e.user = opcodeNop, sqeCQESkip, ownProbe
	switch _, n, errno := d.ask(); {
	case errno != 0:
		set.lacks(featureCQESkip, fmt.Sprintf("io_uring_enter: %v", errno))
	case n > 0:
		set.lacks(featureCQESkip, whyOld)
	default:
		set.found(featureCQESkip)
	}
}

// ask submits the trial and a second request that is answered last, and returns the first
// answer to the trial and the number of its answers.
func (d *ringDriver) ask() (res int32, n int, errno unix.Errno) {
	last, _ := d.ring.next()
	last.opcode, last.user = opcodeNop, ownNone
	done, more := false, 0
	for !done || more > 0 {
		if errno = d.ring.sleep(-1); errno != 0 && errno != unix.EINTR {
			return 0, n, errno
		}
		for c := d.ring.peek(); c != nil; c = d.ring.peek() {
			if c.user == ownNone {
				done = true
			} else {
				if n == 0 {
					res = c.res
				}
				n++
				if c.flags&cqeNotification != 0 {
					more--
				} else if c.flags&cqeMore != 0 {
					more++
				}
			}
			d.ring.skip()
		}
		d.ring.commit()
	}
	return res, n, 0
}
