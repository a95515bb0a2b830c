package uring_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

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
