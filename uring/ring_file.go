//go:build !epoll

package uring

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests on files go to the kernel with those on sockets, in the one system call of a
// turn. The kernel does direct I/O by the device's completion, and in threads of its own
// other requests that it cannot do at once.

// AdoptFile implements FileDriver. The file gets a place in the file table.
func (d *ringDriver) AdoptFile(fd int) (File, error) {
	a, err := alignmentOf(fd)
	if err != nil {
		return File{}, fmt.Errorf("ring: adopt file %d: %w", fd, err)
	}
	s, err := d.Adopt(fd)
	return File{sock: s, align: a}, err
}

// beginFile implements engineRest. One thread of the kernel does all writes to a file through
// the page cache, and would wait for the durability of each before the next. So a durable
// write becomes a write and a sync of its range, which is what the kernel does inside, if the
// file has other requests; alone, it is faster in one request.
func (d *ringDriver) beginFile(op Op, o *operation) error {
	if o.file.flags != 0 && o.file.grain == 0 && d.ops.after(op) != 0 {
		o.file.flags, o.file.length = 0, int64(o.vec.Size())
		o.bits |= opThenSync
	}
	if !d.queueFile(op, o) {
		return d.err
	}
	return nil
}

// finish implements engineRest.
func (d *ringDriver) finish(op Op, res int32) { d.complete(&d.early, op, d.ops.get(op), res) }

// queueFile queues a request for the rest of o; false if the ring is broken.
func (d *ringDriver) queueFile(op Op, o *operation) bool {
	e, _ := d.request()
	if e == nil {
		return false
	}
	e.user = uint64(op)
	d.fillFile(e, o)
	return true
}

// fillFile makes e the request for the rest of o.
func (d *ringDriver) fillFile(e *sqe, o *operation) {
	aim(e, o.sock)
	switch o.step() {
	case stepAllocate:
		e.opcode, e.off, e.addr = opcodeFallocate, uint64(o.file.off), uint64(o.file.length)
	case stepSync:
		e.opcode, e.opFlags = opcodeFsync, fsyncData
		e.off, e.len = uint64(o.file.off), uint32(o.file.length) // length 0: the whole file
	default:
		d.aimTransfer(e, o)
	}
}

// aimTransfer fills in a read or write of the rest of o's list.
func (d *ringDriver) aimTransfer(e *sqe, o *operation) {
	single, list := uint8(opcodeRead), uint8(opcodeReadv)
	if o.kind == KindWrite {
		single, list = opcodeWrite, opcodeWritev
	}
	e.off, e.opFlags = uint64(o.file.off)+uint64(o.sent), uint32(o.file.flags)
	o.bits &^= opFixed
	pieces := o.vec.left()
	if len(pieces) > 1 {
		e.opcode, e.addr, e.len = list, uint64(uintptr(unsafe.Pointer(&pieces[0]))), uint32(len(pieces))
		return
	}
	e.opcode, e.addr, e.len = single, uint64(pieces[0].base), uint32(pieces[0].len)
	if o.file.grain == 0 || o.bits&opPlain != 0 {
		return // the page cache copies, and pins nothing
	}
	if place, ok := d.fixed.place(&pieces[0]); ok {
		o.bits |= opFixed
		e.opcode, e.group = single-opcodeRead+opcodeReadFixed, place
		d.stats.Registered++
	}
}

// fileAnswer deals with an answer to a request on a file.
func (d *ringDriver) fileAnswer(to *[]Completion, op Op, o *operation, res int32) {
	if res < 0 && o.bits&opFixed != 0 && o.step() == stepTransfer && fixedRefused(unix.Errno(-res)) {
		o.bits |= opPlain
		d.again = append(d.again, op)
		return
	}
	if final, again := o.progress(int64(res)); !again {
		d.complete(to, op, o, final)
	} else {
		d.again = append(d.again, op)
	}
}
