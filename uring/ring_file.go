//go:build !epoll

package uring

import (
	"fmt"
	"net"
	"slices"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests on files go to the kernel with those on sockets, in the one system call of a
// turn. The kernel does direct I/O by the device's completion, and in threads of its own
// other requests that it cannot do at once.

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
	if o.bits&opFixed != 0 && o.step() == stepTransfer {
		switch unix.Errno(-res) { // of a file system that cannot do it on registered memory, or does not say so well
		case unix.EFAULT, unix.EINVAL, unix.EOPNOTSUPP:
			o.bits |= opPlain
			d.again = append(d.again, op)
			return
		}
	}
	if final, again := o.progress(int64(res)); !again {
		d.complete(to, op, o, final)
	} else {
		d.again = append(d.again, op)
	}
}

// For a request on a file with direct I/O the kernel looks up and pins each page of its memory,
// and releases it at the end. Memory that is registered with the ring is pinned once. The
// driver finds the requests for it by their addresses, so that its users need not choose;
// requests on other memory work as before.

const (
	// fixedPlaces bounds the registered pieces of memory of a ring.
	fixedPlaces = 1024
	// defaultFixedBytes bounds their size together.
	defaultFixedBytes = 64 << 20
	// lockedShare: a ring takes one part in lockedShare of RLIMIT_MEMLOCK, if the limit
	// holds for it. All rings of a user share the limit, and later ones need room.
	lockedShare = 16
)

var errRegistered = fmt.Errorf("ring: register memory: no more of it: %w", unix.ENOMEM)

// registered is the memory that the kernel keeps pinned for one ring.
type registered struct {
	areas []fixedArea // by address
	free  []uint16    // places of the kernel's table that are not in use
	bytes int64       // of all areas
	most  int64
	full  bool  // the kernel has refused more; until a piece is unregistered
	arg   iovec // the memory of one update, for the kernel to read
}

// fixedArea is one piece of memory.
type fixedArea struct {
	from, to uintptr
	place    uint16
	mem      *Memory
}

// openRegistered registers an empty table.
func (d *ringDriver) openRegistered(cfg *Config) error {
	reg := resourceTable{n: fixedPlaces, flags: resourceSparse}
	if errno := d.ring.register(registerBuffers2, unsafe.Pointer(&reg), uint32(unsafe.Sizeof(reg))); errno != 0 {
		return errno
	}
	t := &registered{free: make([]uint16, fixedPlaces), most: cfg.tests.RegisteredBytes}
	if t.most == 0 {
		t.most = fixedByDefault()
	}
	for i := range t.free {
		t.free[i] = uint16(fixedPlaces - 1 - i)
	}
	d.fixed = t
	return nil
}

// fixedByDefault is the default bound of the registered memory of a ring of this thread, in
// bytes.
func fixedByDefault() int64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur == unix.RLIM_INFINITY || hasCapability(unix.CAP_IPC_LOCK) {
		return defaultFixedBytes
	}
	return int64(min(limit.Cur/lockedShare, defaultFixedBytes))
}

// RegisterMemory implements FileDriver.
func (d *ringDriver) RegisterMemory(m *Memory) error {
	t := d.fixed
	switch {
	case d.closed:
		return fmt.Errorf("ring: register memory: %w", net.ErrClosed)
	case t == nil:
		return errNoRegistered
	case len(m.Bytes()) == 0:
		return fmt.Errorf("ring: register no memory: %w", unix.EINVAL)
	}
	size := int64(len(m.data))
	at, known := t.find(addressOf(m.data))
	switch {
	case known:
		return nil
	case t.full, len(t.free) == 0, size > t.most-t.bytes:
		return errRegistered
	}
	place := t.free[len(t.free)-1]
	if errno := d.updateFixed(place, m.data); errno != 0 {
		t.full = true // RLIMIT_MEMLOCK, as a rule: to try it with each buffer costs more than it brings
		return fmt.Errorf("ring: register %d bytes of memory: %w", size, errno)
	}
	t.free = t.free[:len(t.free)-1]
	from := addressOf(m.data)
	t.areas = slices.Insert(t.areas, at, fixedArea{from: from, to: from + uintptr(size), place: place, mem: m})
	t.bytes += size
	m.pins.Add(1)
	return nil
}

// UnregisterMemory implements FileDriver.
func (d *ringDriver) UnregisterMemory(m *Memory) {
	t := d.fixed
	if d.closed || t == nil || len(m.Bytes()) == 0 {
		return
	}
	at, known := t.find(addressOf(m.data))
	if !known || t.areas[at].mem != m {
		return
	}
	place := t.areas[at].place
	t.areas = slices.Delete(t.areas, at, at+1)
	if d.updateFixed(place, nil) != 0 {
		return // the kernel still has it: it is never unmapped, and its place never used again
	}
	t.free = append(t.free, place)
	t.bytes -= int64(len(m.data))
	t.full = false
	m.pins.Add(-1)
}

// updateFixed has the kernel pin p in a place of its table, or free that place.
func (d *ringDriver) updateFixed(place uint16, p []byte) unix.Errno {
	t := d.fixed
	t.arg = iovec{base: addressOf(p), len: uintptr(len(p))}
	up := resourceUpdate{offset: uint32(place), data: uint64(uintptr(unsafe.Pointer(&t.arg))), n: 1}
	d.stats.Syscalls++
	return d.ring.register(registerBuffersUpdate, unsafe.Pointer(&up), uint32(unsafe.Sizeof(up)))
}

// find is the area that address is in, or where one that begins there belongs.
func (t *registered) find(address uintptr) (at int, in bool) {
	at = sort.Search(len(t.areas), func(i int) bool { return t.areas[i].to > address })
	return at, at < len(t.areas) && t.areas[at].from <= address
}

// place is where the kernel has all of v pinned.
func (t *registered) place(v *iovec) (place uint16, ok bool) {
	if t == nil {
		return 0, false
	}
	at, in := t.find(v.base)
	if !in || v.len > t.areas[at].to-v.base {
		return 0, false
	}
	return t.areas[at].place, true
}

// forget is called after the ring was closed, with no request in flight: the kernel has
// released all pages.
func (t *registered) forget() {
	if t == nil {
		return
	}
	for i := range t.areas {
		t.areas[i].mem.pins.Add(-1)
	}
	t.areas = nil
}

func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
