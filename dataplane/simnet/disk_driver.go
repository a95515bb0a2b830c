package simnet

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// request is one request on a file, in flight.
type request struct {
	uring.FileRequest
	disk   *Disk
	drv    *driver
	h      *handle
	fd     int
	op     uring.Op
	upto   uint64 // KindSync: changes that had happened when it was asked for
	errno  unix.Errno
	failed bool // errno is the fault of the device, which had begun
	gone   bool // it has ended, or never will
}

// AdoptFile implements uring.Driver.
func (d *driver) AdoptFile(fd int) (uring.File, error) {
	h := d.host.Disk().opened[fd]
	switch {
	case h == nil || d.gone:
		return uring.File{}, unix.EBADF
	case h.drv != nil:
		return uring.File{}, unix.EEXIST
	}
	h.drv = d
	return uring.MakeFile(fd, h.align), nil
}

// file is what f names, if it is this driver's.
func (d *driver) file(f uring.File) *handle {
	h := d.host.Disk().opened[f.FD()]
	if h == nil || h.drv != d || h.shut || d.gone {
		return nil
	}
	return h
}

// errPlainMemory: a simulated disk pins nothing.
var errPlainMemory = fmt.Errorf("simnet: register memory: %w", errors.ErrUnsupported)

// RegisterMemory implements uring.Driver.
func (d *driver) RegisterMemory(*uring.Memory) error { return errPlainMemory }
func (d *driver) UnregisterMemory(*uring.Memory)     {}

// AskFile implements uring.Driver.
func (d *driver) AskFile(f uring.File, ask uring.FileRequest) (uring.Op, error) {
	h := d.file(f)
	if h == nil {
		return 0, unix.EBADF
	}
	k, n := d.host.disk, d.host.net
	r := &request{FileRequest: ask, disk: k, drv: d, h: h, fd: f.FD(), op: d.op(), upto: k.seq}
	if r.errno = r.check(); r.errno == 0 {
		r.errno = k.fault(r.Kind, h.path)
		r.failed = r.errno != 0 && !k.orphan
	}
	h.busy++
	k.flying = append(k.flying, r)
	n.After(n.random(k.opt.Latency, k.opt.Jitter), r.happen)
	return r.op, nil
}

// fault is the errno that a request fails with, as DiskOptions say, or a change of names,
// which is KindNone.
func (k *Disk) fault(kind uring.Kind, path string) (errno unix.Errno) {
	if k.orphan {
		return unix.EIO
	}
	if k.opt.Fail != nil {
		errno = k.opt.Fail(kind, path)
	}
	if errno == 0 && k.opt.ErrorEvery > 0 && k.host.net.rng.IntN(k.opt.ErrorEvery) == 0 {
		errno = unix.EIO
	}
	return errno
}

// check says what a kernel would refuse.
func (r *request) check() unix.Errno {
	a := r.h.align
	switch {
	case r.Off < 0, r.Kind == uring.KindAllocate && r.Length <= 0:
		return unix.EINVAL
	case r.Kind != uring.KindRead && r.Kind != uring.KindSync && !r.h.writes:
		return unix.EBADF
	case r.Vec != nil && a.Direct() && (r.Off%int64(a.Offset) != 0 || r.Vec.Size()%a.Offset != 0 || !r.Vec.Aligned(a.Memory)):
		return unix.EINVAL
	}
	return 0
}

// happen is the end of the request.
func (r *request) happen() {
	if !r.gone {
		r.end(r.do())
	}
}

// end answers the request.
func (r *request) end(res int32) {
	r.gone = true
	k := r.disk
	if i := slices.Index(k.flying, r); i >= 0 {
		k.flying = slices.Delete(k.flying, i, i+1)
	}
	if r.h.busy--; r.h.shut && r.h.busy == 0 {
		delete(k.opened, r.fd)
	}
	k.host.net.Note("disk: kind %d of file %d ends with %d", int(r.Kind), r.fd, int(res))
	r.drv.push(uring.Completion{Kind: r.Kind, User: r.User, Op: r.op, Res: res})
}

// changes says whether the request changes the file, and was not refused.
func (r *request) changes() bool {
	return (r.errno == 0 || r.failed) && (r.Kind == uring.KindWrite || r.Kind == uring.KindAllocate)
}

// partly makes any part of the change that the request asks for.
func (r *request) partly() {
	if r.changes() {
		c := r.change()
		r.disk.settle(&c, r.h.write)
	}
}

// change is what the request writes. Its memory is the caller's again behind it.
func (r *request) change() change {
	if r.Kind == uring.KindAllocate {
		return change{seq: r.disk.next(), size: r.Off + r.Length, grows: true}
	}
	return change{seq: r.disk.next(), off: r.Off, p: r.Vec.AppendTo([]byte{})}
}

// do is what the request does to the file, and its result.
func (r *request) do() int32 {
	k := r.disk
	if r.errno != 0 {
		k.counts.Errors++
		r.partly()
		if r.Kind == uring.KindSync {
			r.doom()
		}
		return -int32(r.errno)
	}
	switch r.Kind {
	case uring.KindRead:
		return int32(r.Vec.Fill(r.h.data[min(r.Off, int64(len(r.h.data))):]))
	case uring.KindSync:
		r.h.sync(func(c *change) bool { return c.seq <= r.upto })
		return 0
	}
	c := r.change()
	if k.full(r.h.inode, c) {
		return -int32(unix.ENOSPC)
	}
	r.h.write(c)
	if r.Kind == uring.KindAllocate {
		return 0
	}
	if r.Durable {
		r.h.syncRange(c.off/sector*sector, (c.off+int64(len(c.p))+sector-1)/sector*sector)
	}
	return int32(len(c.p))
}

// doom is a sync that failed.
func (r *request) doom() {
	for i := range r.h.dirty {
		if c := &r.h.dirty[i]; c.seq <= r.upto && !c.doomed {
			c.doomed = true
			r.disk.counts.Dropped++
		}
	}
}

// full says that the disk has no room for c.
func (k *Disk) full(of *inode, c change) bool {
	if k.opt.Room == 0 {
		return false
	}
	used := max(int64(len(of.data)), c.off+int64(len(c.p)), c.size) - int64(len(of.data))
	for _, i := range k.inodes() {
		used += int64(len(i.data))
	}
	return used > k.opt.Room
}

// cancelFile ends a request, or comes too late for it.
func (d *driver) cancelFile(op uring.Op) {
	if d.host.disk == nil {
		return
	}
	for _, r := range d.host.disk.flying {
		if r.drv == d && r.op == op && d.host.net.rng.IntN(2) == 0 {
			r.partly()
			r.end(-int32(unix.ECANCELED))
			return
		}
	}
}

func (d *driver) CloseFile(f uring.File) {
	h := d.file(f)
	if h == nil {
		return
	}
	h.shut = true
	for _, r := range slices.Clone(d.host.disk.flying) {
		if r.h == h {
			d.cancelFile(r.op)
		}
	}
	if h.busy == 0 {
		delete(d.host.disk.opened, f.FD())
	}
}

// closeFiles ends what is in flight as a kernel does that is waited for, and closes
// every file of the driver.
func (d *driver) closeFiles() {
	k := d.host.disk
	if k == nil {
		return
	}
	for _, r := range slices.Clone(k.flying) {
		if r.drv == d {
			r.happen()
		}
	}
	for fd, h := range k.opened {
		if h.drv == d {
			delete(k.opened, fd)
		}
	}
}
