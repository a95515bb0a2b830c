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

func TestWhatIsNoSocketHasNoAddress(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	for _, fd := range []int{-1, int(r.Fd())} {
		if got := LocalAddr(fd); got.IsValid() {
			t.Errorf("descriptor %d: %v", fd, got)
		}
	}
}
