//go:build !epoll

package uring

import (
	"math"
	"math/bits"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollWord is a poll mask as a request has it.
func pollWord(mask uint32) uint32 {
	if nativeLittle {
		return mask
	}
	return bits.RotateLeft32(mask, 16)
}

// begin takes a slot and a request for an operation on s.
func (d *ringDriver) begin(kind Kind, s Socket, user uint64) (Op, *sqe, uint32, error) {
	op, err := d.start(kind, s, user, nil)
	if err != nil {
		return 0, nil, 0, err
	}
	e, i := d.request()
	if e == nil {
		d.ops.end(op)
		return 0, nil, 0, d.err
	}
	e.user = uint64(op)
	aim(e, s)
	return op, e, i, nil
}

// aim names the file of a request.
func aim(e *sqe, s Socket) {
	if s.fixed > 0 {
		e.fd, e.flags = s.fixed-1, sqeFixedFile
	} else {
		e.fd, e.flags = int32(s.FD()), 0
	}
}

// Arm implements Driver.
func (d *ringDriver) Arm(k Kind, s Socket, user uint64) (Op, error) {
	op, e, _, err := d.begin(k, s, user)
	if err != nil {
		return 0, err
	}
	switch k {
	case KindAccept:
		e.opcode, e.ioprio = opcodeAccept, acceptMultishot
		e.opFlags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	case KindReady:
		e.opcode, e.len = opcodePollAdd, pollAddMulti
		e.opFlags = pollWord(unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&math.MaxUint32)
	case KindReceive:
		e.opcode, e.ioprio, e.group = opcodeRecv, recvMultishot, receiveGroup
		e.flags |= sqeBufferSelect
	}
	return op, nil
}

// Connect implements Driver.
func (d *ringDriver) Connect(local, to netip.AddrPort, opt SocketOptions, user uint64) (Socket, Op, error) {
	fd, sa, size, err := d.dial(local, to, opt)
	if err != nil {
		return Socket{}, 0, err
	}
	s, err := d.own(fd, asSocket)
	if err != nil {
		return Socket{}, 0, err
	}
	op, e, i, err := d.begin(KindConnect, s, user)
	if err != nil {
		d.Close(s)
		return Socket{}, 0, err
	}
	// The kernel copies the address when it takes the request; until then the
	// place belonging to this place in the queue holds it.
	d.addrs[i] = sa
	e.opcode = opcodeConnect
	e.addr = uint64(uintptr(unsafe.Pointer(&d.addrs[i])))
	e.off = uint64(size)
	return s, op, nil
}

// Release implements Driver.
func (d *ringDriver) Release(b Buffer) {
	if d.buffers != nil && !d.closed {
		d.buffers.release(b)
	}
}

// Send implements Driver.
func (d *ringDriver) Send(s Socket, v *Vec, user uint64, flags SendFlags) (bool, Op, error) {
	if err := d.sendable(s, v); err != nil || v.Size() == 0 {
		return err == nil, 0, err
	}
	op, ok := d.ops.add(KindSend, s, user, v)
	if !ok {
		return false, 0, errTooMany
	}
	o := d.ops.get(op)
	switch {
	case flags&SendZeroCopy != 0:
		o.bits |= opZero
	case flags&SendQuiet != 0:
		o.bits |= opQuiet
	}
	if !d.queueSend(op, o) {
		d.ops.end(op)
		return false, 0, d.err
	}
	return false, op, nil
}

// queueSend queues a request for the rest of o's list; false if the ring is broken.
func (d *ringDriver) queueSend(op Op, o *operation) bool {
	e, _ := d.request()
	if e == nil {
		return false
	}
	aim(e, o.sock)
	e.opcode = opcodeSendmsg
	e.addr = uint64(o.vec.message())
	e.len = 1
	e.opFlags = unix.MSG_NOSIGNAL | unix.MSG_WAITALL
	e.user = uint64(op)
	switch {
	case o.bits&opZero != 0:
		e.opcode = opcodeSendmsgZC
		if d.reportUsage {
			e.ioprio = sendZCReportUsage
		}
	case o.bits&opQuiet != 0:
		// Either all bytes fit into the socket's buffer now and there is no answer, or the
		// answer has their number.
		e.opFlags |= unix.MSG_DONTWAIT
		e.flags |= sqeCQESkip
		d.quiet = append(d.quiet, quietSend{op: op, made: d.ring.made() - 1})
	}
	return true
}

// Cancel implements Driver.
func (d *ringDriver) Cancel(op Op) {
	o := d.ops.get(op)
	if o == nil || o.bits&opCancel != 0 {
		return
	}
	o.bits |= opCancel
	d.queueCancel(uint64(op))
}

// admit implements engineRest. A listener has no place in the file table: its one request
// lives for long.
func (d *ringDriver) admit(fd int, as use) (Socket, error) {
	s := MakeSocket(fd)
	if d.files != nil && as != asListener {
		d.stats.Syscalls++
		s.fixed = d.files.add(d.ring, fd)
	}
	return s, nil
}

// leave implements engineRest. It frees the place in the file table, which would keep a closed
// file: the peer sees a close at once.
func (d *ringDriver) leave(s Socket, _ bool) unix.Errno {
	if s.fixed > 0 {
		d.stats.Syscalls++
		d.files.remove(d.ring, s.fixed)
	}
	return 0
}

// defaultFiles is the size of the ring's table. Sockets beyond use plain descriptors.
const defaultFiles = 4096

// files is the ring's table of registered descriptors: requests that name a
// place in it spare the kernel the look-up and the reference count.
type files struct {
	free []int32 // places not in use
	arg  int32   // the descriptor of one update, for the kernel to read
}

// newFiles registers a sparse table of n places, fewer if the limit on
// descriptors says so.
func newFiles(r *ring, n int) (*files, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(n) > limit.Cur {
		n = int(limit.Cur)
	}
	reg := resourceTable{n: uint32(n), flags: resourceSparse}
	if errno := r.register(registerFiles2, unsafe.Pointer(&reg), uint32(unsafe.Sizeof(reg))); errno != 0 {
		return nil, errno
	}
	f := &files{free: make([]int32, n)}
	for i := range f.free {
		f.free[i] = int32(n - 1 - i)
	}
	return f, nil
}

// add gives fd a place and returns it + 1, or 0 if there is none.
func (f *files) add(r *ring, fd int) int32 {
	if len(f.free) == 0 {
		return 0
	}
	i := f.free[len(f.free)-1]
	if f.update(r, i, int32(fd)) != 0 {
		return 0
	}
	f.free = f.free[:len(f.free)-1]
	return i + 1
}

// remove clears the place that add returned. Requests in flight keep the
// file that they started with. A place that cannot be cleared is not reused.
func (f *files) remove(r *ring, fixed int32) {
	if f.update(r, fixed-1, -1) == 0 {
		f.free = append(f.free, fixed-1)
	}
}

func (f *files) update(r *ring, i, fd int32) unix.Errno {
	f.arg = fd
	up := slotUpdate{offset: uint32(i), data: uint64(uintptr(unsafe.Pointer(&f.arg)))}
	return r.register(registerFilesUpdate, unsafe.Pointer(&up), 1)
}
