package bpf

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var must = drivertest.Must

// patience bounds waits for things that happen at once unless broken.
const patience = time.Minute

// mustLoad loads a program for the test, and closes it behind it. Where the
// process may not or the kernel cannot, the test is skipped, or fails if the
// environment says CI=true: CI machines have to run these tests.
func mustLoad(t testing.TB, cfg Config) *Steering {
	t.Helper()
	if cfg.TableSize == 0 {
		cfg.TableSize = 1024
	}
	s, err := Load(cfg)
	if errors.Is(err, ErrPermission) || errors.Is(err, ErrUnsupported) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must be able to load programs: %v", err)
		}
		t.Skipf("cannot load programs here: %v", err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// needMigration skips the test where the kernel cannot move connections, and
// fails it where the kernel should.
func needMigration(t testing.TB, s *Steering) {
	t.Helper()
	if s.Info().Migration {
		return
	}
	if !kernelBefore(t, 5, 14) {
		t.Fatal("this kernel should be able to move connections")
	}
	t.Skip("connections cannot move before Linux 5.14")
}

// needIPv6 is the same for IPv6.
func needIPv6(t testing.TB) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Bind(fd, sockaddr(netip.MustParseAddrPort("[::1]:0")))
	}
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI must have IPv6: %v", err)
	}
	t.Skipf("no IPv6 here: %v", err)
}

// group is an SO_REUSEPORT group of listeners on one address; the index is the
// core. Closed ones are -1.
type group struct {
	addr netip.AddrPort
	fds  []int
}

func listen(t testing.TB, ip string, cores int) *group {
	t.Helper()
	g := &group{addr: netip.AddrPortFrom(netip.MustParseAddr(ip), 0)}
	if g.addr.Addr().Is6() {
		needIPv6(t)
	}
	t.Cleanup(func() {
		for core := range g.fds {
			g.close(t, core)
		}
	})
	for range cores {
		g.grow(t)
	}
	return g
}

// grow adds one listener to the group and returns its descriptor.
func (g *group) grow(t testing.TB) int {
	t.Helper()
	fd := openSocket(t, g.addr.Addr())
	g.fds = append(g.fds, fd)
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	must(t, unix.Bind(fd, sockaddr(g.addr)))
	must(t, unix.Listen(fd, 256))
	if g.addr.Port() == 0 {
		g.addr = uring.LocalAddr(fd)
	}
	return fd
}

func (g *group) close(t testing.TB, core int) {
	t.Helper()
	if g.fds[core] >= 0 {
		must(t, unix.Close(g.fds[core]))
		g.fds[core] = -1
	}
}

// steer attaches s and fills the slots with the whole group.
func (g *group) steer(t testing.TB, s *Steering) {
	t.Helper()
	must(t, s.Attach(g.fds[0]))
	for core, fd := range g.fds {
		must(t, s.Add(core, fd))
	}
}

// accept returns the core at which the only waiting connection waits, having
// closed it.
func (g *group) accept(t testing.TB) int {
	t.Helper()
	core := g.waiting(t)
	fd, _, err := unix.Accept4(g.fds[core], unix.SOCK_CLOEXEC)
	must(t, err)
	must(t, unix.Close(fd))
	return core
}

// waiting returns a core at which a connection waits.
func (g *group) waiting(t testing.TB) int {
	t.Helper()
	polled := make([]unix.PollFd, len(g.fds))
	for core, fd := range g.fds {
		polled[core] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := unix.Poll(polled, 100); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		for core := range polled {
			if polled[core].Revents&unix.POLLIN != 0 {
				return core
			}
		}
	}
	t.Fatal("no listener has the connection")
	return -1
}

// dial connects from a chosen source (port 0: any) on a chosen CPU (-1: any).
// The source is free again as soon as the connection is closed.
func dial(t testing.TB, from, to netip.AddrPort, cpu int) int {
	t.Helper()
	fd := openSocket(t, to.Addr())
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	must(t, unix.Bind(fd, sockaddr(from)))
	onCPU(t, cpu, func() { must(t, unix.Connect(fd, sockaddr(to))) })
	return fd
}

// onCPU runs f on a CPU. A SYN over loopback is taken by the CPU that sent it.
func onCPU(t testing.TB, cpu int, f func()) {
	t.Helper()
	if cpu < 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &before))
	only.Set(cpu)
	must(t, unix.SchedSetaffinity(0, &only))
	defer func() { must(t, unix.SchedSetaffinity(0, &before)) }()
	f()
}

// someCPUs returns two CPUs that the test may run on, the same one twice if
// there is one only.
func someCPUs(t testing.TB) (a, b int) {
	t.Helper()
	cpus, err := uring.AllowedCPUs()
	must(t, err)
	return cpus[0], cpus[len(cpus)-1]
}

func openSocket(t testing.TB, ip netip.Addr) int {
	t.Helper()
	family := unix.AF_INET6
	if ip.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	return fd
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func snapshot(t testing.TB, s *Steering) Counters {
	t.Helper()
	c, err := s.Counters()
	must(t, err)
	return c
}

// defaultPolicy enables the table and the CPU rule for cores 0 to cores-1.
func defaultPolicy(cores int) Policy {
	return Policy{Rules: UseTable | UseCPU, Cores: cores}
}
