package uring

import (
	"encoding/binary"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// featureAIO, Linux AIO for direct I/O, is a feature of the epoll engine; its name is that of
// Info. Without it threads wait for such files.
const featureAIO = "linux_aio"

// aioDepth bounds the requests that AIO has, and takes in one call.
const aioDepth = 256

const (
	aioRead     = 0
	aioWrite    = 1
	aioDataSync = 3
	aioReadv    = 7
	aioWritev   = 8

	aioTells = 1 << 0 // in iocb.flags: an eventfd reports the end
)

// iocb is one request of Linux AIO, laid out as in the kernel.
type iocb struct {
	data    uint64
	words   [2]uint32 // key and rw_flags, on a big-endian machine the other way round
	opcode  uint16
	_       int16
	fd      uint32
	buf     uint64
	size    uint64 // bytes, or entries of a list
	off     int64
	_       uint64
	flags   uint32
	eventFD uint32
}

// aioEvent is one answer.
type aioEvent struct {
	data, obj uint64
	res, res2 int64
}

// nativeLittle: some words of the kernel's have their halves swapped elsewhere.
var nativeLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// aio is one context of Linux AIO. The kernel copies the submitted requests, and keeps
// only their memory after that.
type aio struct {
	ctx     uintptr
	waiting []Op // not submitted
	busy    int  // submitted, and not answered
	eventFD uint32
	iocbs   [aioDepth]iocb
	list    [aioDepth]uintptr // addresses of iocbs
	ops     [aioDepth]Op
	events  [aioDepth]aioEvent
}

// openAIO opens the context, for the first file with direct I/O.
func (d *epollDriver) openAIO() {
	k := &d.disk
	if k.tried {
		return
	}
	k.tried = true
	d.info.Features = slices.Clone(d.info.Features) // others have the former list
	feature := &d.info.Features[1]
	if feature.Why == whyOff {
		return
	}
	a := &aio{eventFD: uint32(k.ended.fd)}
	d.stats.Syscalls++
	if _, _, errno := unix.RawSyscall(unix.SYS_IO_SETUP, aioDepth, uintptr(unsafe.Pointer(&a.ctx)), 0); errno != 0 {
		feature.Why = errno.Error()
		return
	}
	k.aio, feature.Have, feature.Why = a, true, ""
}

// queue has op submitted with the next system call.
func (a *aio) queue(op Op, o *operation) {
	o.bits |= opParked
	a.waiting = append(a.waiting, op)
}

// submitAIO gives the kernel the waiting requests, as far as it has room.
func (d *epollDriver) submitAIO() {
	a := d.disk.aio
	if a == nil || len(a.waiting) == 0 {
		return
	}
	taken := 0 // of a.waiting
	for taken < len(a.waiting) && a.busy < aioDepth {
		n, from := 0, taken
		for from+n < len(a.waiting) && n < aioDepth-a.busy {
			op := a.waiting[from+n]
			o := d.ops.get(op)
			if o == nil { // cancelled
				a.waiting = append(a.waiting[:from+n], a.waiting[from+n+1:]...)
				continue
			}
			a.iocbs[n] = a.fill(op, o)
			a.list[n], a.ops[n] = uintptr(unsafe.Pointer(&a.iocbs[n])), op
			n++
		}
		if n == 0 {
			break
		}
		done, errno := a.submit(n)
		d.stats.Syscalls++
		if errno == unix.EAGAIN && a.busy > 0 {
			break // there is room when a request has ended
		}
		for _, op := range a.ops[:done] {
			d.ops.get(op).bits &^= opParked
		}
		a.busy += done
		taken += done
		if errno != 0 { // it does not take the first one: a thread finds out why
			op := a.ops[0]
			o := d.ops.get(op)
			o.bits &^= opParked
			d.disk.pool.give(op, o, &d.disk.ended)
			taken++
		}
	}
	a.waiting = a.waiting[:copy(a.waiting, a.waiting[taken:])]
}

// submit gives the first n of list to the kernel. It may wait where a file grows.
func (a *aio) submit(n int) (int, unix.Errno) {
	done, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, a.ctx, uintptr(n), uintptr(unsafe.Pointer(&a.list[0])))
	runtime.KeepAlive(a)
	if errno != 0 {
		return 0, errno
	}
	return int(done), 0
}

// fill makes the request for the rest of o.
func (a *aio) fill(op Op, o *operation) iocb {
	b := iocb{data: uint64(op), fd: uint32(o.sock.FD()), flags: aioTells, eventFD: a.eventFD}
	if o.step() == stepSync {
		b.opcode = aioDataSync
		return b
	}
	flags := 1
	if !nativeLittle {
		flags = 0
	}
	b.words[flags] = uint32(o.file.flags)
	b.off = o.file.off + int64(o.sent)
	single, list := uint16(aioRead), uint16(aioReadv)
	if o.kind == KindWrite {
		single, list = aioWrite, aioWritev
	}
	if pieces := o.vec.left(); len(pieces) == 1 {
		b.opcode, b.buf, b.size = single, uint64(pieces[0].base), uint64(pieces[0].len)
	} else {
		b.opcode, b.buf, b.size = list, uint64(uintptr(unsafe.Pointer(&pieces[0]))), uint64(len(pieces))
	}
	return b
}

// collectAIO takes the answers that are there.
func (d *epollDriver) collectAIO() {
	a := d.disk.aio
	for a.busy > 0 {
		var now unix.Timespec
		d.stats.Syscalls++
		n, _, errno := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, a.ctx, 0, aioDepth, uintptr(unsafe.Pointer(&a.events[0])),
			uintptr(unsafe.Pointer(&now)), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			return
		}
		a.busy -= int(n)
		for i := range a.events[:n] {
			d.fileAnswer(Op(a.events[i].data), a.events[i].res)
		}
	}
}

// transfer makes the one system call that moves the rest of o's list, by call.
func (o *operation) transfer(flags int32, call func(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err unix.Errno)) int64 {
	trap := uintptr(unix.SYS_PREADV2)
	if o.kind == KindWrite {
		trap = unix.SYS_PWRITEV2
	}
	pieces := o.vec.left()
	off := o.file.off + int64(o.sent)
	n, _, errno := call(trap, uintptr(o.sock.FD()), uintptr(unsafe.Pointer(&pieces[0])), uintptr(len(pieces)),
		uintptr(off), uintptr(uint64(off)>>32), uintptr(flags))
	runtime.KeepAlive(o.vec)
	if errno != 0 {
		return -int64(errno)
	}
	return int64(n)
}
