package uring_test

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// inFlight starts one operation of each kind that cannot end by itself.
func (r *rig) inFlight() map[string]flight {
	r.t.Helper()
	flights := map[string]flight{}
	l := r.listen(loopback, uring.ListenOptions{})
	user, op := r.accept(l)
	flights["accept"] = flight{l, user, op}
	s, _ := r.plain()
	user, op = r.ready(s)
	flights["ready"] = flight{s, user, op}
	if r.d.Info().Receive {
		s, _ = r.plain()
		user, op = r.receive(s)
		flights["receive"] = flight{s, user, op}
	}
	s, _, user, op = r.clogged()
	flights["send"] = flight{s, user, op}
	sockets, users, ops := r.hangingConnects()
	last := len(ops) - 1 // the first ones may still get in
	flights["connect"] = flight{sockets[last], users[last], ops[last]}
	r.settle()
	return flights
}

type flight struct {
	s    uring.Socket
	user uint64
	op   uring.Op
}

// Matrix: IO-02, IO-07
func TestCancelAndCloseEndEachKindOnce(t *testing.T) {
	for _, closed := range []bool{false, true} {
		overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
			flights := r.inFlight()
			for kind, f := range flights {
				if cs := r.collected[f.user]; len(cs) > 0 {
					t.Fatalf("%s: completed too early: %+v", kind, cs[0])
				}
				if closed {
					r.d.Close(f.s)
				} else {
					r.d.Cancel(f.op)
				}
			}
			for kind, f := range flights {
				c := r.awaitFinal(f.user)
				if c.Errno() != unix.ECANCELED && (kind != "send" || c.Res < 0) && (!closed || c.Res >= 0) {
					t.Fatalf("%s, closed %v: final completion %+v (%v), want ECANCELED", kind, closed, c, c.Errno())
				}
				r.d.Cancel(f.op) // it has ended
				r.d.Cancel(0)
				r.expectNone(f.user)
			}
		})
	}
}

// The socket works on after a Cancel, and the slot is another operation's.
func TestCancelOfAnEndedOperationIsIgnored(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		var old []uring.Op
		for range 20 {
			user, op := r.ready(s)
			r.d.Cancel(op)
			r.expectFinal(user, unix.ECANCELED)
			old = append(old, op)
		}
		user, _ := r.ready(s)
		for _, op := range old {
			r.d.Cancel(op)
		}
		r.expectNone(user)
		write(t, conn, []byte("x"))
		expectReadable(t, r.await(user))
	})
}

// Matrix: SH-14
func TestCloseEndsTheStreamOfThePeer(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		a, b := r.pair(uring.SocketOptions{})
		ready, _ := r.ready(b)
		armed, _ := r.ready(a) // an operation in flight must not keep it open
		r.d.Close(a)
		r.expectFinal(armed, unix.ECANCELED)
		for ended := false; !ended; {
			r.await(ready)
			_, ended = r.drain(b)
		}
	})
}

// The number of a closed descriptor is reused at once: nothing that was meant
// for the old socket reaches the new one.
// Matrix: IO-18
func TestDescriptorReuseHasNoCrossTalk(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		reused := 0
		var olds []uint64
		for range 100 {
			a, b := r.pair(uring.SocketOptions{})
			old, _ := r.ready(a)
			olds = append(olds, old)
			r.sendAll(b, r.vec([]byte("for the old one")))
			r.d.Close(a) // its event is on the way
			c, user, _ := r.connect(netip.AddrPort{}, r.listening(), uring.SocketOptions{})
			if c.FD() == a.FD() {
				reused++
			}
			fresh, _ := r.ready(c)
			if c := r.await(user); c.Res != 0 {
				t.Fatalf("connect: %v", c.Errno())
			}
			d := r.acceptOne()
			r.expectFinal(old, unix.ECANCELED)
			if data, ended := r.drain(c); len(data) > 0 || ended {
				t.Fatalf("the new socket reads %q, end %v", data, ended)
			}
			r.sendAll(d, r.vec([]byte("new")))
			var got []byte
			for len(got) == 0 {
				expectReadable(t, r.await(fresh))
				got, _ = r.drain(c)
			}
			if string(got) != "new" {
				t.Fatalf("the new socket reads %q", got)
			}
			for _, s := range []uring.Socket{b, c, d} {
				r.d.Close(s)
			}
			r.expectFinal(fresh, unix.ECANCELED)
		}
		for _, old := range olds {
			r.expectNone(old)
		}
		if reused == 0 {
			t.Fatal("no number was reused: the test shows nothing")
		}
	})
}

// Matrix: SH-14
func TestShutdownEndsBothDirections(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, peer, user, _ := r.clogged()
		ready, _ := r.ready(s)
		r.d.Shutdown(s)
		r.expectFinal(user, unix.EPIPE, unix.ECONNRESET, unix.ECANCELED)
		if c := r.await(ready); c.Res < 0 && c.Flags&uring.More != 0 {
			t.Fatalf("Ready: %+v", c)
		}
		if _, ended := r.drain(s); !ended {
			t.Fatal("the stream goes on")
		}
		reader, _ := r.ready(peer)
		for ended := false; !ended; {
			if _, ended = r.drain(peer); !ended {
				r.await(reader)
			}
		}
	})
}

func TestShutdownEndsReceiveAndAccept(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		l := r.listen(loopback, uring.ListenOptions{})
		user, _ := r.accept(l)
		r.settle()
		r.d.Shutdown(l)
		if c := r.awaitFinal(user); c.Res >= 0 {
			t.Fatalf("accept ended with %+v", c)
		}
		if r.d.Info().Receive {
			s, _ := r.plain()
			user, _ := r.receive(s)
			r.settle()
			r.d.Shutdown(s)
			if c := r.awaitFinal(user); c.Res != 0 {
				t.Fatalf("receive ended with %+v (%v), want the end of the stream", c, c.Errno())
			}
		}
	})
}

// Matrix: IO-07, INV-07
func TestCloseDriverReleasesEverything(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			open := func() {
				r := newRig(t, uring.Config{Backend: backend})
				defer r.finish()
				flights := r.inFlight()
				// Connections that the kernel has accepted for us, and nobody took.
				addr := r.d.LocalAddr(flights["accept"].s).String()
				for range 3 {
					c, err := net.Dial("tcp", addr)
					must(t, err)
					r.cleanup(func() { c.Close() })
				}
				s, _ := r.plain()
				r.ready(s) // never submitted
			}
			open() // what the runtime opens once is open now
			before := drivertest.Descriptors(t)
			for range 3 {
				open()
			}
			if after := drivertest.Descriptors(t); after != before {
				t.Fatalf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func TestClosedDriverIsHarmless(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, _ := r.plain()
		_, op := r.ready(s)
		r.closeDriver()
		if _, err := r.d.Wait(0); err == nil {
			t.Error("Wait after CloseDriver")
		}
		if _, err := r.d.Ready(s, 1); err == nil {
			t.Error("Ready after CloseDriver")
		}
		if _, err := r.d.Listen(loopback, uring.ListenOptions{}); err == nil {
			t.Error("Listen after CloseDriver")
		}
		if _, _, err := r.d.Connect(netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:1"), uring.SocketOptions{}, 1); err == nil {
			t.Error("Connect after CloseDriver")
		}
		r.d.Cancel(op)
		r.d.Close(s)
		r.d.Wake()
		if err := r.d.CloseDriver(); err != nil {
			t.Errorf("second CloseDriver: %v", err)
		}
		if n := r.d.Stats().InFlight; n != 0 {
			t.Errorf("%d operations in flight after CloseDriver", n)
		}
	})
}

func TestADetachedSocketGoesOnWhereItIsAdopted(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		a, b := r.pair(uring.SocketOptions{})
		user, op := r.ready(a)
		if _, err := r.d.Detach(a); !errors.Is(err, unix.EBUSY) {
			t.Fatalf("detached with an operation in flight: %v", err)
		}
		r.d.Cancel(op)
		r.expectFinal(user, unix.ECANCELED)
		r.sendAll(b, r.vec([]byte("before")))
		fd, err := r.d.Detach(a)
		if err != nil || fd != a.FD() {
			t.Fatalf("descriptor %d, %v, want %d", fd, err, a.FD())
		}
		if _, errno := r.d.Recv(a, make([]byte, 1)); errno != unix.EBADF {
			t.Errorf("read from a socket that has left: %v", errno)
		}
		if _, err := r.d.Detach(a); !errors.Is(err, unix.EBADF) {
			t.Errorf("detached twice: %v", err)
		}
		r.d.Close(a) // does nothing: the descriptor is not the driver's

		again, err := r.d.Adopt(fd)
		must(t, err)
		user, _ = r.ready(again)
		expectReadable(t, r.await(user))
		if data, ended := r.drain(again); string(data) != "before" || ended {
			t.Fatalf("read %q, end %v", data, ended)
		}
		r.sendAll(b, r.vec([]byte("behind")))
		expectReadable(t, r.await(user))
		if data, ended := r.drain(again); string(data) != "behind" || ended {
			t.Fatalf("read %q, end %v", data, ended)
		}
		r.sendAll(again, r.vec([]byte("back")))
	})
}
