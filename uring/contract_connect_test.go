package uring_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Matrix: SH-14, IO-04
func TestAcceptFindsConnectionsThatCameBefore(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		l := r.listen(loopback, uring.ListenOptions{})
		addr := r.d.LocalAddr(l).String()
		var want []string
		for range 200 { // more than one turn takes
			c, err := net.Dial("tcp", addr)
			must(t, err)
			defer c.Close()
			want = append(want, c.LocalAddr().String())
		}
		r.settle() // whatever signal there was is gone
		user, _ := r.accept(l)
		for _, w := range want { // in order of arrival
			c := r.await(user)
			if c.Res < 0 {
				t.Fatalf("accept: %v", c.Errno())
			}
			s := r.adopt(c.Res)
			if got := r.d.PeerAddr(s).String(); got != w {
				t.Fatalf("accepted %s, want %s", got, w)
			}
			status, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFL, 0)
			flags, err2 := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0)
			if err != nil || err2 != nil || status&unix.O_NONBLOCK == 0 || flags&unix.FD_CLOEXEC == 0 {
				t.Fatalf("accepted descriptor has status %#x and flags %#x (%v, %v)", status, flags, err, err2)
			}
		}
		r.expectNone(user)
	})
}

// Out of descriptors is an answer, not a loop.
// Matrix: RL-05, IO-04
func TestAcceptOutOfDescriptors(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		l := r.listen(loopback, uring.ListenOptions{})
		conn, err := net.Dial("tcp", r.d.LocalAddr(l).String())
		must(t, err)
		defer conn.Close()
		exhaust := drivertest.LowerLimit(t)
		user, _ := r.accept(l)
		restore := exhaust()
		c := r.await(user)
		before := r.d.Stats().Syscalls
		r.settle()
		calls := r.d.Stats().Syscalls - before
		restore()
		if c.Errno() != unix.EMFILE || c.Flags&uring.More != 0 {
			t.Fatalf("completion %+v (%v), want a final EMFILE", c, c.Errno())
		}
		if calls > 10 {
			t.Fatalf("%d system calls while nothing was armed", calls)
		}
		user, _ = r.accept(l)
		if c := r.await(user); c.Res < 0 {
			t.Fatalf("accept after descriptors came back: %v", c.Errno())
		} else {
			r.d.Close(r.adopt(c.Res))
		}
	})
}

// A connect that fails at once has its completion like one that is refused.
// Matrix: SH-14, IO-05
func TestConnectFails(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		l := r.listen(loopback, uring.ListenOptions{})
		addr := r.d.LocalAddr(l)
		r.d.Close(l)
		refused, user, _ := r.connect(netip.AddrPort{}, addr, uring.SocketOptions{})
		r.expectFinal(user, unix.ECONNREFUSED)
		r.d.Close(refused) // it is ours all the same
		// From a loopback address there is no way out.
		want := plainConnect(t, [4]byte{127, 0, 0, 1}, [4]byte{192, 0, 2, 1})
		s, user, _ := r.connect(loopback, netip.MustParseAddrPort("192.0.2.1:9"), uring.SocketOptions{})
		r.expectFinal(user, want)
		r.d.Close(s)
	})
}

// plainConnect is what the kernel says to a connect without a driver.
func plainConnect(t *testing.T, from, to [4]byte) unix.Errno {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: from}))
	var errno unix.Errno
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to, Port: 9}); !errors.As(err, &errno) {
		t.Fatalf("connect to a documentation address: %v", err)
	}
	return errno
}

func TestConnectFromChosenAddress(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		to := r.listening()
		for _, local := range []string{"127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:" + fmt.Sprint(freePort(t, "127.0.0.3"))} {
			want := netip.MustParseAddrPort(local)
			s := r.connected(want, to, uring.SocketOptions{})
			peer := r.acceptOne()
			got := r.d.LocalAddr(s)
			if got.Addr() != want.Addr() || want.Port() != 0 && got.Port() != want.Port() {
				t.Fatalf("connected from %v, want %v", got, want)
			}
			if seen := r.d.PeerAddr(peer); seen != got {
				t.Fatalf("the listener sees %v, want %v", seen, got)
			}
			if seen := r.d.PeerAddr(s); seen != to {
				t.Fatalf("PeerAddr %v, want %v", seen, to)
			}
		}
		before := drivertest.Descriptors(t)
		for bad, want := range map[[2]netip.AddrPort]unix.Errno{
			{netip.MustParseAddrPort("192.0.2.7:0"), to}: unix.EADDRNOTAVAIL, // of somebody else
			{}: unix.EINVAL, // to nowhere
		} {
			if _, _, err := r.d.Connect(bad[0], bad[1], uring.SocketOptions{}, 1); !errors.Is(err, want) {
				t.Fatalf("connected from %v to %v: %v, want %v", bad[0], bad[1], err, want)
			}
		}
		if after := drivertest.Descriptors(t); after != before {
			t.Fatalf("%d descriptors leaked", after-before)
		}
	})
}

func freePort(t *testing.T, ip string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	must(t, err)
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// Matrix: IN-08
func TestAddressesOfBothFamilies(t *testing.T) {
	for _, tt := range []struct{ listen, dial string }{
		{"127.0.0.1:0", "127.0.0.1"},
		{"0.0.0.0:0", "127.0.0.1"},
		{"[::1]:0", "::1"},
		{"[::]:0", "127.0.0.1"},
		{"[::ffff:127.0.0.1]:0", "127.0.0.1"},
		{"127.0.0.1:0", "::ffff:127.0.0.1"},
	} {
		t.Run(tt.listen+" "+tt.dial, func(t *testing.T) {
			overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
				want := netip.MustParseAddr(tt.dial).Unmap()
				l := r.listen(netip.MustParseAddrPort(tt.listen), uring.ListenOptions{})
				port := r.d.LocalAddr(l).Port()
				if port == 0 {
					t.Fatalf("LocalAddr of the listener: %v", r.d.LocalAddr(l))
				}
				acceptor, _ := r.accept(l)
				s := r.connected(netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(tt.dial), port), uring.SocketOptions{})
				peer := r.adopt(r.await(acceptor).Res)
				if a := r.d.PeerAddr(s); a != netip.AddrPortFrom(want, port) || a != r.d.LocalAddr(peer) {
					t.Fatalf("PeerAddr %v, LocalAddr of the other side %v, want %v port %d", a, r.d.LocalAddr(peer), want, port)
				}
				if a := r.d.LocalAddr(s); a.Addr() != want || a != r.d.PeerAddr(peer) {
					t.Fatalf("LocalAddr %v, PeerAddr of the other side %v", a, r.d.PeerAddr(peer))
				}
			})
		})
	}
}

// shares has both listeners of an address get some of many connections.
func (r *rig) shares(addr netip.AddrPort, a, b uring.Socket) {
	r.t.Helper()
	userA, _ := r.accept(a)
	userB, _ := r.accept(b)
	const total = 64
	for range total {
		c, err := net.DialTimeout("tcp", addr.String(), patience)
		must(r.t, err)
		r.t.Cleanup(func() { _ = c.Close() })
	}
	gotA, gotB := 0, 0
	r.until("connections missing", func() bool {
		gotA, gotB = len(r.collected[userA]), len(r.collected[userB])
		return gotA+gotB == total
	})
	if gotA == 0 || gotB == 0 {
		r.t.Fatalf("connections %d and %d: not shared", gotA, gotB)
	}
}

// Matrix: XC-06
func TestAGroupIsSharedByThoseWhoJoinIt(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		found, join := uring.ListenOptions{Exclusive: true}, uring.ListenOptions{ReusePort: true}
		for _, first := range []uring.ListenOptions{found, join} {
			a := r.listen(loopback, first)
			addr := r.d.LocalAddr(a)
			b := r.listen(addr, join)
			r.shares(addr, a, b)
			lone := r.d.LocalAddr(r.listen(loopback, uring.ListenOptions{}))
			for _, c := range []struct {
				at  netip.AddrPort
				opt uring.ListenOptions
			}{{addr, uring.ListenOptions{}}, {addr, found}, {lone, found}} {
				if s, err := r.d.Listen(c.at, c.opt); !errors.Is(err, unix.EADDRINUSE) {
					t.Errorf("a group of %+v: %+v on %v: %v, %v", first, c.opt, c.at, err, s)
				}
			}
		}
	})
}

func TestSocketOptionsAreSet(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		opt := uring.SocketOptions{SendBuffer: 40 << 10, ReceiveBuffer: 50 << 10}
		l := r.listen(loopback, uring.ListenOptions{SocketOptions: opt})
		acceptor, _ := r.accept(l)
		s := r.connected(netip.AddrPort{}, r.d.LocalAddr(l), opt)
		peer := r.adopt(r.await(acceptor).Res)
		for _, sock := range []uring.Socket{s, peer} {
			for _, want := range []struct{ level, name, value int }{
				{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
				{unix.SOL_SOCKET, unix.SO_SNDBUF, 2 * opt.SendBuffer}, // the kernel doubles
				{unix.SOL_SOCKET, unix.SO_RCVBUF, 2 * opt.ReceiveBuffer},
			} {
				if got, err := unix.GetsockoptInt(sock.FD(), want.level, want.name); err != nil || got != want.value {
					t.Errorf("option %d is %d (%v), want %d", want.name, got, err, want.value)
				}
			}
		}
	})
}

func TestOperationsOnNothingFail(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		var none uring.Socket
		for _, kind := range []uring.Kind{uring.KindAccept, uring.KindReady, uring.KindReceive} {
			if _, err := r.d.Arm(kind, none, 1); err == nil {
				t.Errorf("kind %v is armed on the zero Socket", kind)
			}
		}
		if _, _, err := r.d.Send(none, r.vec([]byte("x")), 1, 0); err == nil {
			t.Error("Send on the zero Socket")
		}
		if _, errno := r.d.Recv(none, make([]byte, 1), nil); errno == 0 {
			t.Error("Recv on the zero Socket")
		}
		r.d.EndWriting(none)
		r.d.Close(none)
		for fd, want := range map[int]unix.Errno{-1: unix.EBADF, r.listen(loopback, uring.ListenOptions{}).FD(): unix.EEXIST} {
			if _, err := r.d.Adopt(fd); !errors.Is(err, want) {
				t.Errorf("descriptor %d is adopted, want %v: %v", fd, want, err)
			}
		}
		if cs, err := r.d.Wait(time.Millisecond); err != nil || len(cs) != 0 {
			t.Fatalf("Wait: %v, %v", cs, err)
		}
	})
}
