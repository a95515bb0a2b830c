package uring_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

func epollRig(t *testing.T, cfg uring.Config) *rig {
	t.Helper()
	cfg.Backend = uring.Epoll
	return lockedRig(t, cfg)
}

// A duplicate of the descriptor, such as a forked child holds, keeps the
// kernel's registration alive after Close. Its events are not those of the
// socket that has the number now.
// Matrix: IO-08
func TestEpollDropsEventsOfAnEarlierSocket(t *testing.T) {
	r := epollRig(t, uring.Config{})
	old, conn := r.plain()
	keep, err := unix.FcntlInt(uintptr(old.FD()), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(keep)
	r.settle()
	r.d.Close(old)
	fresh, user, _ := r.connect(netip.AddrPort{}, r.listening(), uring.SocketOptions{})
	if fresh.FD() != old.FD() {
		t.Fatalf("descriptor %d was not reused, got %d", old.FD(), fresh.FD())
	}
	if c := r.await(user); c.Res != 0 {
		t.Fatal(c.Errno())
	}
	ready, _ := r.ready(fresh)
	stale := r.d.Stats().Stale
	write(t, conn, []byte("for the old one"))
	r.until("the late event has not come", func() bool { r.d.Wake(); return r.d.Stats().Stale > stale })
	r.expectNone(ready)
}

// Connections that wait bring no other event.
// Matrix: IO-08
func TestEpollDoesNotSleepOverConnectionsBeyondItsBudget(t *testing.T) {
	r, want := epollRig(t, uring.Config{}), 70
	l := r.listen(loopback, uring.ListenOptions{})
	for range want {
		conn, err := net.Dial("tcp", r.d.LocalAddr(l).String())
		must(t, err)
		r.cleanup(func() { conn.Close() })
	}
	begun, sleep := time.Now(), patience
	_, op := r.accept(l)
	for want > 0 {
		list, err := r.d.Wait(sleep)
		must(t, err)
		if time.Since(begun) >= sleep {
			t.Fatalf("it sleeps, and %d connections wait", want)
		}
		for _, c := range list {
			must(t, unix.Close(int(c.Res)))
			want--
		}
	}
	r.d.Cancel(op)
	_, op = r.accept(l) // tried by the next Wait
	r.d.Cancel(op)
	r.settle()
	before := r.d.Stats().Sleeps
	if _, err := r.d.Wait(time.Millisecond); err != nil || r.d.Stats().Sleeps == before {
		t.Errorf("it does not sleep any more after a cancelled accept: %v", err)
	}
}

// A read may have taken the error with which a connect has ended.
func TestEpollDoesNotTakeARefusedConnectForASuccess(t *testing.T) {
	r := epollRig(t, uring.Config{})
	l := r.listen(loopback, uring.ListenOptions{})
	to := r.d.LocalAddr(l)
	r.d.Close(l)
	s, user, _ := r.connect(netip.AddrPort{}, to, uring.SocketOptions{})
	errno := unix.EAGAIN
	for errno == unix.EAGAIN {
		_, errno = r.d.Recv(s, make([]byte, 1), nil)
	}
	if c := r.await(user); errno != unix.ECONNREFUSED || c.Res >= 0 {
		t.Errorf("the read fails with %v, the connect with %v", errno, c.Errno())
	}
}

// Another process may have the listener, too: its connections are none of an engine that has closed it,
// nor is it known there when it comes back.
// Matrix: IO-08
func TestEpollForgetsAListenerThatOthersHave(t *testing.T) {
	r := epollRig(t, uring.Config{})
	l := r.listen(loopback, uring.ListenOptions{})
	r.accept(l)
	addr := r.d.LocalAddr(l)
	theirs, err := unix.FcntlInt(uintptr(l.FD()), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(theirs)
	r.d.Close(l)
	back, err := unix.FcntlInt(uintptr(theirs), unix.F_DUPFD_CLOEXEC, 0) // it has the same number
	must(t, err)
	r.settle()
	stale := r.d.Stats().Stale
	conn, err := net.Dial("tcp", addr.String())
	must(t, err)
	defer conn.Close()
	if r.settle(); r.d.Stats().Stale != stale {
		t.Error("a connection of theirs wakes this engine")
	}
	r.acceptor, _ = r.accept(r.adopt(int32(back)))
	r.acceptOne()
}

// A handle kept after Close is not one of the socket that has its number now.
func TestEpollRejectsHandlesOfAnEarlierSocket(t *testing.T) {
	r := epollRig(t, uring.Config{})
	old, _ := r.plain()
	r.d.Close(old)
	fresh, peer := r.pair(uring.SocketOptions{})
	if fresh.FD() != old.FD() {
		t.Fatalf("descriptor %d was not reused, got %d", old.FD(), fresh.FD())
	}
	r.d.Close(old)
	r.d.EndWriting(old)
	if _, err := r.d.Arm(uring.KindReady, old, 1); err == nil {
		t.Fatal("Ready on a closed socket")
	}
	if _, errno := r.d.Recv(old, make([]byte, 1), nil); errno != unix.EBADF {
		t.Fatalf("Recv on a closed socket: %v", errno)
	}
	user, _ := r.ready(fresh)
	r.sendAll(peer, r.vec([]byte("x")))
	expectReadable(t, r.await(user))
}

func TestEpollRefusesASecondSendInFlight(t *testing.T) {
	r := epollRig(t, uring.Config{})
	s, _, _, _ := r.clogged()
	if _, _, err := r.d.Send(s, r.vec([]byte("x")), 1, 0); err == nil {
		t.Fatal("two sends in flight on one socket")
	}
}
