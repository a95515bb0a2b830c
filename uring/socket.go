package uring

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Plain socket calls, the same for every driver. None of them blocks.

const backlog = 512

// openTCP returns a non-blocking, close-on-exec TCP socket of addr's family
// with opt set.
func openTCP(addr netip.AddrPort, opt SocketOptions) (int, error) {
	if !addr.IsValid() {
		return -1, fmt.Errorf("open socket: invalid address: %w", unix.EINVAL)
	}
	family := unix.AF_INET6
	if addr.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, fmt.Errorf("open socket for %v: %w", addr, err)
	}
	if err := setOptions(fd, opt); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("socket for %v: %w", addr, err)
	}
	return fd, nil
}

func setOptions(fd int, opt SocketOptions) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	if opt.SendBuffer > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, opt.SendBuffer); err != nil {
			return fmt.Errorf("set SO_SNDBUF %d: %w", opt.SendBuffer, err)
		}
	}
	if opt.ReceiveBuffer > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, opt.ReceiveBuffer); err != nil {
			return fmt.Errorf("set SO_RCVBUF %d: %w", opt.ReceiveBuffer, err)
		}
	}
	return nil
}

// acknowledged is Driver.Acknowledged.
func acknowledged(fd int) uint64 {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return info.Bytes_acked
}

// listenTCP is Driver.Listen up to the descriptor. Accepted sockets inherit
// the options.
func listenTCP(addr netip.AddrPort, opt ListenOptions) (int, error) {
	fd, err := openTCP(addr, opt.SocketOptions)
	if err != nil {
		return -1, err
	}
	if err := bindAndListen(fd, addr, opt); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen on %v: %w", addr, err)
	}
	return fd, nil
}

func bindAndListen(fd int, addr netip.AddrPort, opt ListenOptions) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if opt.ReusePort && !opt.Exclusive {
		if err := reusePort(fd); err != nil {
			return err
		}
	}
	if err := bind(fd, addr); err != nil {
		return err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return err
	}
	if opt.Exclusive {
		// Only now: the kernel refuses one of two that bind at the same time.
		return reusePort(fd)
	}
	return nil
}

func reusePort(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fmt.Errorf("set SO_REUSEPORT: %w", err)
	}
	return nil
}

// dialTCP opens the socket of Driver.Connect and binds it to local if that is
// valid. It does not connect.
func dialTCP(local, to netip.AddrPort, opt SocketOptions) (int, error) {
	fd, err := openTCP(to, opt)
	if err != nil {
		return -1, err
	}
	if local.IsValid() {
		if err := bindLocal(fd, local); err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("bind to %v: %w", local, err)
		}
	}
	return fd, nil
}

func bindLocal(fd int, local netip.AddrPort) error {
	if local.Port() == 0 {
		// The port is then chosen by connect, which knows the peer and so can
		// share it among peers. Not essential: errors are ignored.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	} else if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	return bind(fd, local)
}

// sockaddrSize is the room that any address needs.
const sockaddrSize = unix.SizeofSockaddrInet6

// putSockaddr writes addr as the kernel's socket address and returns its size.
func putSockaddr(dst *[sockaddrSize]byte, addr netip.AddrPort) (int, error) {
	clear(dst[:])
	a := addr.Addr().Unmap()
	binary.BigEndian.PutUint16(dst[2:], addr.Port())
	switch {
	case a.Is4():
		binary.NativeEndian.PutUint16(dst[:], unix.AF_INET)
		b := a.As4()
		copy(dst[4:], b[:])
		return unix.SizeofSockaddrInet4, nil
	case a.Is6():
		binary.NativeEndian.PutUint16(dst[:], unix.AF_INET6)
		b := a.As16()
		copy(dst[8:], b[:])
		zone, err := zoneIndex(a.Zone())
		if err != nil {
			return 0, err
		}
		binary.NativeEndian.PutUint32(dst[24:], zone)
		return unix.SizeofSockaddrInet6, nil
	}
	return 0, fmt.Errorf("invalid address: %w", unix.EINVAL)
}

func zoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifc, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %q: %w", zone, err)
	}
	return uint32(ifc.Index), nil
}

func bind(fd int, addr netip.AddrPort) error {
	var sa [sockaddrSize]byte
	n, err := putSockaddr(&sa, addr)
	if err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(n)); errno != 0 {
		return errno
	}
	return nil
}

// recvNow is Driver.Recv into one place. It does not touch the ring, so p may be anywhere.
func recvNow(fd int, p []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}

// recvvNow is Driver.Recv into two places.
func recvvNow(fd int, p, q []byte) (int, unix.Errno) {
	iov := [2]unix.Iovec{{Base: unsafe.SliceData(p)}, {Base: unsafe.SliceData(q)}}
	iov[0].SetLen(len(p))
	iov[1].SetLen(len(q))
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov)), uintptr(len(iov)))
		if errno == unix.EINTR {
			continue
		}
		runtime.KeepAlive(&iov)
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}

// LocalAddr is the address of an IP socket that no driver has; invalid if the
// kernel knows none. Any goroutine.
func LocalAddr(fd int) netip.AddrPort {
	return nameOf(unix.SYS_GETSOCKNAME, fd)
}

// nameOf asks the kernel for one of the addresses of an IP socket. Those of the unix
// package take four pieces of memory for it.
func nameOf(call uintptr, fd int) netip.AddrPort {
	var name unix.RawSockaddrInet6 // the longer one
	size := uint32(unsafe.Sizeof(name))
	if _, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size))); errno != 0 {
		return netip.AddrPort{}
	}
	switch name.Family {
	case unix.AF_INET:
		in4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&name))
		return netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), portOf(in4.Port))
	case unix.AF_INET6:
		a := netip.AddrFrom16(name.Addr)
		if name.Scope_id != 0 && !a.Is4In6() {
			a = a.WithZone(strconv.FormatUint(uint64(name.Scope_id), 10))
		}
		return netip.AddrPortFrom(a.Unmap(), portOf(name.Port))
	}
	return netip.AddrPort{}
}

// portOf is a port that is stored in the order of the network.
func portOf(p uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&p))[:])
}
