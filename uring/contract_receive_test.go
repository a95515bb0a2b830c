package uring_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

func TestReadyReportsWhatCameBeforeArming(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		write(t, conn, []byte("early"))
		r.settle() // the driver has seen the edge, nobody has asked for it
		user, op := r.ready(s)
		expectReadable(t, r.await(user))
		r.d.Cancel(op)
		r.awaitFinal(user)
		user, _ = r.ready(s) // and nothing was read
		expectReadable(t, r.await(user))
		if data, ended := r.drain(s); string(data) != "early" || ended {
			t.Fatalf("read %q, end %v", data, ended)
		}
	})
}

func TestReadyReportsEachArrival(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		user, _ := r.ready(s)
		r.expectNone(user)
		for i := range 50 {
			write(t, conn, []byte{byte(i), byte(i)})
			expectReadable(t, r.await(user))
			if data, ended := r.drain(s); !bytes.Equal(data, []byte{byte(i), byte(i)}) || ended {
				t.Fatalf("round %d: read %v, end %v", i, data, ended)
			}
		}
		r.expectNone(user)
		// More of them without reading: at least one more completion, and
		// everything is there.
		write(t, conn, []byte("a"))
		expectReadable(t, r.await(user))
		write(t, conn, []byte("b"))
		expectReadable(t, r.await(user))
		if data, _ := r.drain(s); string(data) != "ab" {
			t.Fatalf("read %q", data)
		}
	})
}

func TestReadyReportsTheEndOfTheStream(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		user, _ := r.ready(s)
		write(t, conn, []byte("last"))
		conn.CloseWrite()
		var data []byte
		for ended := false; !ended; {
			expectReadable(t, r.await(user))
			var more []byte
			more, ended = r.drain(s)
			data = append(data, more...)
		}
		if string(data) != "last" {
			t.Fatalf("read %q", data)
		}
	})
}

func expectReadable(t *testing.T, c uring.Completion) {
	t.Helper()
	if c.Res < 0 || c.Res&(unix.POLLIN|unix.POLLHUP|unix.POLLERR|unix.POLLRDHUP) == 0 || c.Flags&uring.More == 0 {
		t.Fatalf("completion %+v (%v), want readable with More", c, c.Errno())
	}
}

func TestRecvvBoundaries(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		user, _ := r.ready(s)
		if n, errno := r.d.Recvv(s, make([]byte, 1), make([]byte, 1)); n != 0 || errno != unix.EAGAIN {
			t.Fatalf("Recvv of nothing: %d, %v", n, errno)
		}
		for _, tt := range []struct{ p, q, data int }{
			{4, 4, 3}, {4, 4, 4}, {4, 4, 5}, {4, 4, 8}, {1, 100, 60}, {100, 1, 101}, {5, 0, 5}, {0, 5, 5},
		} {
			want := randomBytes(rand.New(rand.NewPCG(uint64(tt.p), uint64(tt.q))), tt.data)
			write(t, conn, want)
			r.await(user)
			p, q := make([]byte, tt.p), make([]byte, tt.q)
			n, errno := r.d.Recvv(s, p, q)
			if errno != 0 || n != tt.data {
				t.Fatalf("%+v: %d, %v", tt, n, errno)
			}
			if got := slices.Concat(p, q)[:n]; !bytes.Equal(got, want) {
				t.Fatalf("%+v: read %x, want %x", tt, got, want)
			}
		}
		conn.CloseWrite()
		r.await(user)
		if n, errno := r.d.Recvv(s, make([]byte, 1), make([]byte, 1)); n != 0 || errno != 0 {
			t.Fatalf("Recvv at the end: %d, %v", n, errno)
		}
	})
}

func TestReceiveIsSupportedAsSaid(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, _ := r.plain()
		user := r.user()
		op, err := r.d.Receive(s, user)
		if want := r.d.Info().Receive; want != (err == nil) {
			t.Fatalf("Info().Receive %v, Receive: %v", want, err)
		}
		if err == nil {
			r.track(op, user, uring.KindReceive)
		} else if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("Receive: %v, want errors.ErrUnsupported", err)
		}
	})
}
