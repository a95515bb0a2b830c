package uring

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheKernelsFormOfAnAddressOfIPv6(t *testing.T) {
	var got [sockaddrSize]byte
	n, err := putSockaddr(&got, netip.MustParseAddrPort("[fe80::1:2%77]:258"))
	want := [sockaddrSize]byte{2: 1, 3: 2, 8: 0xfe, 9: 0x80, 21: 1, 23: 2}
	binary.NativeEndian.PutUint16(want[:], unix.AF_INET6)
	binary.NativeEndian.PutUint32(want[24:], 77)
	if n != sockaddrSize || err != nil || got != want {
		t.Errorf("%d bytes of %x, %v, want %x", n, got, err, want)
	}
}

func TestTheAddressOfASocketThatNoDriverHas(t *testing.T) {
	for _, one := range []struct {
		family int
		at     unix.Sockaddr
		want   string
	}{
		{unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, "127.0.0.1"},
		{unix.AF_INET6, &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}, "::1"},
		{unix.AF_INET6, &unix.SockaddrInet6{Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}, "127.0.0.1"},
	} {
		fd, err := unix.Socket(one.family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Bind(fd, one.at))
		got := LocalAddr(fd)
		if got.Addr().String() != one.want || got.Port() == 0 {
			t.Errorf("%v, want %s", got, one.want)
		}
		unix.Close(fd)
		if got := LocalAddr(fd); got.IsValid() {
			t.Errorf("closed: %v", got)
		}
	}
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	if got := LocalAddr(int(r.Fd())); got.IsValid() {
		t.Errorf("the address of a pipe: %v", got)
	}
}
