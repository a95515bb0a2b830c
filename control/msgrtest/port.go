package msgrtest

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ReservePort is an address of 127.0.0.1 that belongs to the test until its end. The kernel
// gives the port to no other process, and a connect is refused. A socket with SO_REUSEADDR, as
// messengers and package net have it, may listen there, close, and listen again.
func ReservePort(t testing.TB) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("msgrtest: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // it is only reserved
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	err = errors.Join(err, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	sa, err2 := unix.Getsockname(fd)
	if err := errors.Join(err, err2); err != nil {
		t.Fatalf("msgrtest: %v", err)
	}
	in := sa.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}

// Until calls ok every millisecond until it returns true, for a condition that other
// goroutines bring about without an event. The error is the cause of the end of ctx.
func Until(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
