//go:build !epoll

package uring

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Listen implements Driver. A listener has no place in the file table: its one
// request lives for long.
func (d *ringDriver) Listen(addr netip.AddrPort, opt ListenOptions) (Socket, error) {
	fd, err := d.listen(addr, opt)
	if err != nil {
		return Socket{}, err
	}
	s := MakeSocket(fd)
	d.track(s)
	return s, nil
}

// Adopt implements Driver.
func (d *ringDriver) Adopt(fd int) (Socket, error) {
	if err := d.adoptable(fd); err != nil {
		return Socket{}, err
	}
	s := MakeSocket(fd)
	if d.files != nil {
		d.stats.Syscalls++
		s.fixed = d.files.add(d.ring, fd)
	}
	d.track(s)
	return s, nil
}

// Shutdown implements Driver. Requests made before go first.
func (d *ringDriver) Shutdown(s Socket) {
	if !d.isOpen(s) {
		return
	}
	if d.ring.unsubmitted() > 0 {
		d.flushAll()
	}
	d.stats.Syscalls++
	_ = unix.Shutdown(s.FD(), unix.SHUT_RDWR) // ENOTCONN: ended already
}

// Close implements Driver.
func (d *ringDriver) Close(s Socket) {
	if !d.isOpen(s) {
		return
	}
	d.cancelOn(s.FD())
	// Requests name the file by number: the kernel takes them before the number is free for
	// another file. It also releases the file now, so that the peer sees the close at once.
	if d.ring.unsubmitted() > 0 {
		d.flushAll()
	}
	d.shed(s)
}

// shed closes a descriptor that no request names any more.
func (d *ringDriver) shed(s Socket) {
	d.forget(s)
	d.stats.Syscalls++
	_ = unix.Close(s.FD())
}

// forget lets go of a descriptor that no request names any more, and frees its place in
// the file table.
func (d *ringDriver) forget(s Socket) {
	d.socks[s.FD()] = Socket{}
	if s.fixed > 0 {
		d.stats.Syscalls++
		d.files.remove(d.ring, s.fixed)
	}
}

// Detach implements Driver.
func (d *ringDriver) Detach(s Socket) (int, error) {
	if err := d.detachable(s); err != nil {
		return -1, err
	}
	d.forget(s)
	return s.FD(), nil
}

// defaultFiles is the size of the ring's table. Sockets beyond use plain descriptors.
const defaultFiles = 4096

// files is the ring's table of registered descriptors: requests that name a
// place in it spare the kernel the look-up and the reference count.
type files struct {
	free []int32 // places not in use
	mem  *Memory
	arg  *int32 // in mem: the descriptor of one update
}

// newFiles registers a sparse table of n places, fewer if the limit on
// descriptors says so.
func newFiles(r *ring, n int) (*files, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(n) > limit.Cur {
		n = int(limit.Cur)
	}
	mem, err := Map(int(unsafe.Sizeof(int32(0))))
	if err != nil {
		return nil, err
	}
	reg := resourceTable{n: uint32(n), flags: resourceSparse}
	if errno := r.register(registerFiles2, unsafe.Pointer(&reg), uint32(unsafe.Sizeof(reg))); errno != 0 {
		_ = mem.Unmap()
		return nil, errno
	}
	f := &files{free: make([]int32, n), mem: mem, arg: (*int32)(unsafe.Pointer(&mem.Bytes()[0]))}
	for i := range f.free {
		f.free[i] = int32(n - 1 - i)
	}
	return f, nil
}

// add gives fd a place and returns it + 1, or 0 if there is none.
func (f *files) add(r *ring, fd int) int32 {
	if f == nil || len(f.free) == 0 {
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
	*f.arg = fd
	up := slotUpdate{offset: uint32(i), data: uint64(uintptr(unsafe.Pointer(f.arg)))}
	errno := r.register(registerFilesUpdate, unsafe.Pointer(&up), 1)
	return errno
}

// unmap is for the moment after the ring was closed.
func (f *files) unmap() error {
	if f == nil {
		return nil
	}
	return f.mem.Unmap()
}
