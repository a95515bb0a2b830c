package drivertest

import (
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Must ends the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FullListener is the address of a listener whose queue is full: a connect there has no answer.
// cleanup, as that of the test, gets what closes it.
func FullListener(t testing.TB, cleanup func(end func())) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Must(t, err)
	cleanup(func() { _ = unix.Close(fd) })
	Must(t, errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)))
	sa, err := unix.Getsockname(fd)
	Must(t, err)
	conn, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Must(t, err)
	cleanup(func() { _ = unix.Close(conn) })
	Must(t, unix.Connect(conn, sa))
	for { // the kernel tells of the queue, so that a busy machine does not pass for a full one
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		Must(t, err)
		if queued, most := info.Unacked, info.Sacked; queued > most {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
		}
		runtime.Gosched()
	}
}

// LowerLimit lowers the limit on descriptors until the end of the test. exhaust leaves none of
// them free until restore.
func LowerLimit(t testing.TB) (exhaust func() (restore func())) {
	t.Helper()
	var old unix.Rlimit
	Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(old.Cur, 512), Max: old.Max}))
	t.Cleanup(func() { Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) })
	return func() func() {
		var fds []int
		for fd, err := unix.Dup(0); err == nil; fd, err = unix.Dup(0) {
			fds = append(fds, fd)
		}
		restore := sync.OnceFunc(func() {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		})
		t.Cleanup(restore)
		return restore
	}
}
