//go:build !epoll

package uring

import (
	"fmt"
	"math"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Listen implements Driver. A listener has no place in the file table: its one
// request lives for long.
func (d *ringDriver) Listen(addr netip.AddrPort, opt ListenOptions) (Socket, error) {
	if d.state != stateOpen {
		return Socket{}, fmt.Errorf("ring: listen: %w", net.ErrClosed)
	}
	fd, err := listenTCP(addr, opt)
	if err != nil {
		return Socket{}, fmt.Errorf("ring: %w", err)
	}
	s := MakeSocket(fd)
	d.track(s)
	return s, nil
}

// Adopt implements Driver.
func (d *ringDriver) Adopt(fd int) (Socket, error) {
	if d.state != stateOpen {
		return Socket{}, fmt.Errorf("ring: adopt: %w", net.ErrClosed)
	}
	if fd < 0 || fd >= math.MaxInt32 {
		return Socket{}, fmt.Errorf("ring: adopt descriptor %d: %w", fd, unix.EBADF)
	}
	if fd < len(d.socks) && d.socks[fd].Valid() {
		return Socket{}, fmt.Errorf("ring: adopt descriptor %d: %w", fd, unix.EEXIST)
	}
	s := MakeSocket(fd)
	if d.files != nil {
		d.stats.Syscalls++
		s.fixed = d.files.add(d.ring, fd)
	}
	d.track(s)
	return s, nil
}

func (d *ringDriver) track(s Socket) {
	for s.FD() >= len(d.socks) {
		d.socks = append(d.socks, Socket{})
	}
	d.socks[s.FD()] = s
}

// LocalAddr implements Driver.
func (d *ringDriver) LocalAddr(s Socket) netip.AddrPort {
	if !d.isOpen(s) {
		return netip.AddrPort{}
	}
	d.stats.Syscalls++
	return LocalAddr(s.FD())
}

// PeerAddr implements Driver.
func (d *ringDriver) PeerAddr(s Socket) netip.AddrPort {
	if !d.isOpen(s) {
		return netip.AddrPort{}
	}
	d.stats.Syscalls++
	return peerAddr(s.FD())
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
	fd := s.FD()
	for op := d.ops.first(fd); op != 0; op = d.ops.after(op) {
		d.Cancel(op)
	}
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
	if !d.isOpen(s) {
		return -1, fmt.Errorf("ring: detach: socket %d is not open: %w", s.FD(), unix.EBADF)
	}
	fd := s.FD()
	if d.ops.first(fd) != 0 {
		return -1, fmt.Errorf("ring: detach descriptor %d: %w", fd, unix.EBUSY)
	}
	d.forget(s)
	return fd, nil
}
