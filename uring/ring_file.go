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

// startFile takes a slot for a request on f, and queues it.
func (d *ringDriver) startFile(kind Kind, f File, v *Vec, user uint64, fill func(o *operation)) (Op, error) {
	if err := d.usable(f.sock); err != nil {
		return 0, err
	}
	if len(d.shut) > 0 && d.shut[f.FD()] {
		return 0, fmt.Errorf("ring: file %d is being closed: %w", f.FD(), unix.EBADF)
	}
	if kind.tooLong(v) {
		return 0, fmt.Errorf("ring: file %d: %w", f.FD(), errTooLong)
	}
	op, ok := d.ops.add(kind, f.sock, user, v)
	if !ok {
		return 0, errTooMany
	}
	o := d.ops.get(op)
	fill(o)
	if kind.transfers() && v.Size() == 0 {
		d.complete(&d.early, op, o, 0)
		return op, nil
	}
	if !d.queueFile(op, o) {
		d.ops.end(op)
		return 0, d.err
	}
	return op, nil
}

// ReadFile implements FileDriver.
func (d *ringDriver) ReadFile(f File, v *Vec, off int64, user uint64) (Op, error) {
	return d.startFile(KindRead, f, v, user, func(o *operation) { o.begin(f, off, 0, false) })
}

// WriteFile implements FileDriver. One thread of the kernel does all writes to a file through
// the page cache, and would wait for the durability of each before the next. So a durable
// write becomes a write and a sync of its range, which is what the kernel does inside, if the
// file has other requests; alone, it is faster in one request.
func (d *ringDriver) WriteFile(f File, v *Vec, off int64, user uint64, durable bool) (Op, error) {
	split := durable && !f.align.Direct() && v.Size() > 0 && d.ops.first(f.FD()) != 0
	return d.startFile(KindWrite, f, v, user, func(o *operation) {
		if o.begin(f, off, 0, durable && !split); split {
			o.file.length = int64(v.Size())
			o.bits |= opThenSync
		}
	})
}

// SyncFile implements FileDriver.
func (d *ringDriver) SyncFile(f File, user uint64) (Op, error) {
	return d.startFile(KindSync, f, nil, user, func(o *operation) { o.begin(f, 0, 0, false) })
}

// AllocateFile implements FileDriver.
func (d *ringDriver) AllocateFile(f File, off, n int64, user uint64) (Op, error) {
	return d.startFile(KindAllocate, f, nil, user, func(o *operation) { o.begin(f, off, n, false) })
}

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

// fileEnded closes a file that waited for its last operation.
func (d *ringDriver) fileEnded(s Socket) {
	if fd := s.FD(); d.shut[fd] && d.ops.first(fd) == 0 {
		d.closeFile(s)
	}
}

// CloseFile implements FileDriver. The kernel looks at the number of a file when it
// begins with a request, which may be late: the number stays taken as long.
func (d *ringDriver) CloseFile(f File) {
	fd := f.FD()
	if d.state != stateOpen || !d.isOpen(f.sock) || d.shut[fd] {
		return
	}
	if d.ops.first(fd) == 0 {
		d.closeFile(f.sock)
		return
	}
	for op := d.ops.first(fd); op != 0; op = d.ops.after(op) {
		d.Cancel(op)
	}
	d.shutFile(fd)
}

func (d *ringDriver) shutFile(fd int) {
	if d.shut == nil {
		d.shut = map[int]bool{}
	}
	d.shut[fd] = true
}

// closeFile closes a file without operations. It queues no request.
func (d *ringDriver) closeFile(s Socket) {
	delete(d.shut, s.FD())
	d.shed(s)
}
