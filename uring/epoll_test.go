package uring_test

import (
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

func TestEpollWaitsInMillisecondsWithoutPwait2(t *testing.T) {
	r := epollRig(t, uring.Without(uring.Config{}, "epoll_pwait2"))
	for _, f := range r.d.Info().Features {
		if f.Name == "epoll_pwait2" && (f.Have || f.Why == "") {
			t.Fatalf("feature %+v is switched off", f)
		}
	}
	enters := r.d.Stats().Enters
	for _, timeout := range []time.Duration{time.Microsecond, 1500 * time.Microsecond, 3 * time.Millisecond} {
		start := time.Now()
		if n := r.step(timeout); n != 0 {
			t.Fatalf("%d completions", n)
		}
		if took := time.Since(start); took < timeout {
			t.Fatalf("Wait(%v) returned after %v", timeout, took)
		}
	}
	// Rounded up, each of them is one sleep, or a few if signals of the Go
	// scheduler cut it short; rounded down it would spin.
	if n := r.d.Stats().Enters - enters; n < 3 || n > 30 {
		t.Fatalf("%d waits of the kernel for three timeouts", n)
	}
	e := newEcho(r)
	for range 100 {
		e.round()
	}
}
