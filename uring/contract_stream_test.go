package uring_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
		if r.d.Info().Receive {
			return
		}
		if _, err := r.d.Arm(uring.KindReceive, s, r.user()); !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("Receive: %v, want errors.ErrUnsupported", err)
		}
	})
}

func expectReadable(t *testing.T, c uring.Completion) {
	t.Helper()
	if c.Res < 0 || c.Res&(unix.POLLIN|unix.POLLHUP|unix.POLLERR|unix.POLLRDHUP) == 0 || c.Flags&uring.More == 0 {
		t.Fatalf("completion %+v (%v), want readable with More", c, c.Errno())
	}
}

func TestRecvBoundaries(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		user, _ := r.ready(s)
		if n, errno := r.d.Recv(s, make([]byte, 1), make([]byte, 1)); n != 0 || errno != unix.EAGAIN {
			t.Fatalf("Recv of nothing: %d, %v", n, errno)
		}
		for _, tt := range []struct{ p, q, data int }{
			{4, 4, 3}, {4, 4, 4}, {4, 4, 5}, {4, 4, 8}, {1, 100, 60}, {100, 1, 101}, {5, 0, 5}, {0, 5, 5},
		} {
			want := randomBytes(rand.New(rand.NewPCG(uint64(tt.p), uint64(tt.q))), tt.data)
			write(t, conn, want)
			r.await(user)
			p, q := make([]byte, tt.p), make([]byte, tt.q)
			n, errno := r.d.Recv(s, p, q)
			if errno != 0 || n != tt.data {
				t.Fatalf("%+v: %d, %v", tt, n, errno)
			}
			if got := slices.Concat(p, q)[:n]; !bytes.Equal(got, want) {
				t.Fatalf("%+v: read %x, want %x", tt, got, want)
			}
		}
		conn.CloseWrite()
		r.await(user)
		if n, errno := r.d.Recv(s, make([]byte, 1), make([]byte, 1)); n != 0 || errno != 0 {
			t.Fatalf("Recv at the end: %d, %v", n, errno)
		}
	})
}

// Matrix: FR-25, SH-14, IO-05, IO-16
func TestALargeSendArrivesWholeAndLeavesItsListAsItWas(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		r.slice = time.Millisecond // the completion of a quiet send may wait for something else
		s, peer := r.pair(uring.SocketOptions{SendBuffer: 64 << 10})
		rnd := random(t)
		pieces := [][]byte{randomBytes(rnd, 1), randomBytes(rnd, 3<<20), randomBytes(rnd, 5000)}
		v, want := r.vec(pieces...), slices.Concat(pieces...)
		for _, flags := range []uring.SendFlags{0, 0, uring.SendQuiet, uring.SendZeroCopy, 0} {
			done, user, _ := r.send(s, v, flags)
			var got []byte
			r.until("bytes or the completion are missing", func() bool {
				data, _ := r.drain(peer)
				got = append(got, data...)
				return len(got) >= len(want) && (done || len(r.collected[user]) > 0)
			})
			if c, ok := r.take(user); ok && int(c.Res) != len(want) || !bytes.Equal(got, want) {
				t.Fatalf("flags %d: %+v (%v), the peer has %d bytes of %d, or others", flags, c, c.Errno(), len(got), len(want))
			}
		}
	})
}

// The peer's kernel acknowledges bytes also while the rest of their send is in flight.
// Matrix: KA-05
func TestThePartOfASendThatThePeerHasIsKnown(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		r.slice = time.Millisecond // no completion comes
		s, conn := r.plain()
		if n := r.d.Acknowledged(s); n > 1 {
			t.Fatalf("%d bytes are acknowledged before one is sent", n)
		}
		const size = 64 << 20 // more than the kernel has room for
		done, _, _ := r.send(s, r.vec(make([]byte, size)), 0)
		if done {
			t.Fatal("the kernel has taken 64 MiB")
		}
		last := uint64(0)
		for range 3 { // each time as much as has come, and was acknowledged
			r.until("no more bytes are acknowledged", func() bool { return r.d.Acknowledged(s) > last })
			if last = r.d.Acknowledged(s); last >= size {
				t.Fatalf("%d bytes are acknowledged of those that nobody has read", last)
			}
			if _, err := io.CopyN(io.Discard, conn, int64(last)); err != nil {
				t.Fatal(err)
			}
		}
		r.d.Close(s)
		if n := r.d.Acknowledged(s); n != 0 {
			t.Errorf("%d bytes of a closed socket", n)
		}
	})
}

// A reset ends the operations in flight, and later ones fail.
// Matrix: SH-15, IO-02, IO-05
func TestAResetByThePeerEndsEverything(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		begun := func(start func(s uring.Socket) uint64) (uring.Socket, uint64) {
			s, conn := r.plain()
			user := start(s)
			r.settle()
			conn.SetLinger(0)
			conn.Close()
			return s, user
		}
		for _, flags := range []uring.SendFlags{0, uring.SendQuiet} {
			_, user := begun(func(s uring.Socket) uint64 {
				_, user, _ := r.send(s, r.vec(make([]byte, 64<<20)), flags)
				return user
			})
			r.expectFinal(user, unix.ECONNRESET, unix.EPIPE)
		}
		if r.d.Info().Receive {
			_, user := begun(func(s uring.Socket) uint64 { user, _ := r.receive(s); return user })
			r.expectFinal(user, unix.ECONNRESET)
		}
		for _, reads := range []bool{true, false} {
			s, user := begun(func(s uring.Socket) uint64 { user, _ := r.ready(s); return user })
			expectReadable(t, r.await(user))
			if reads {
				if n, errno := r.d.Recv(s, make([]byte, 8), nil); errno != unix.ECONNRESET {
					t.Errorf("Recv: %d, %v, want ECONNRESET", n, errno)
				}
			}
			for i := range 2 {
				done, late, _ := r.send(s, r.vec([]byte("too late")), 0)
				if done {
					t.Fatal("sent to a peer that is gone")
				}
				if c := r.awaitFinal(late); c.Errno() != unix.EPIPE && (i > 0 || reads || c.Errno() != unix.ECONNRESET) {
					t.Errorf("send %d failed with %v, want EPIPE", i, c.Errno())
				}
			}
		}
	})
}
