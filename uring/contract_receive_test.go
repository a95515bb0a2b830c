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

func TestReadyReportsAReset(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		user, _ := r.ready(s)
		conn.SetLinger(0)
		conn.Close()
		expectReadable(t, r.await(user))
		if n, errno := r.d.Recv(s, make([]byte, 8)); errno != unix.ECONNRESET {
			t.Fatalf("Recv: %d, %v, want ECONNRESET", n, errno)
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

// receiving runs f where the driver has Receive.
func receiving(t *testing.T, cfg uring.Config, f func(t *testing.T, r *rig)) {
	overDrivers(t, cfg, func(t *testing.T, r *rig) {
		if !r.d.Info().Receive {
			t.Skipf("%s has no Receive", r.d.Info().Backend)
		}
		f(t, r)
	})
}

// Matrix: IO-02
func TestReceiveStream(t *testing.T) {
	for _, total := range []int{1, 4096, 3 << 20} {
		receiving(t, uring.Config{}, func(t *testing.T, r *rig) {
			rnd := random(t)
			s, conn := r.plain()
			user, _ := r.receive(s)
			want := randomBytes(rnd, total)
			chunks := rand.New(rand.NewPCG(rnd.Uint64(), 1))
			go func() {
				for rest := want; len(rest) > 0; {
					n := min(len(rest), 1+chunks.IntN(1+chunks.IntN(100_000)))
					if _, err := conn.Write(rest[:n]); err != nil {
						break // the reader will miss it
					}
					rest = rest[n:]
				}
				conn.CloseWrite()
			}()
			r.compareStream(rnd, s, user, want, 6)
		})
	}
}

// compareStream reads s to its end and hands buffers back in random order,
// holding at most hold of them. It arms again after ENOBUFS.
func (r *rig) compareStream(rnd *rand.Rand, s uring.Socket, user uint64, want []byte, hold int) (starved int) {
	r.t.Helper()
	type held struct {
		uring.Completion
		want []byte
	}
	var holding []held
	release := func() {
		i := rnd.IntN(len(holding))
		h := holding[i]
		holding = slices.Delete(holding, i, i+1)
		// It is still what it was: nobody else wrote there.
		if !bytes.Equal(h.Data, h.want) {
			r.t.Fatal("bytes changed before Release")
		}
		r.d.Release(h.Buf)
	}
	for {
		c := r.await(user)
		switch {
		case c.Errno() == unix.ENOBUFS:
			if c.Flags&uring.More != 0 {
				r.t.Fatal("ENOBUFS with More")
			}
			starved++
			for len(holding) > 0 {
				release()
			}
			user, _ = r.receive(s)
		case c.Res < 0:
			r.t.Fatalf("receive: %v", c.Errno())
		case c.Res == 0:
			if len(want) != 0 {
				r.t.Fatalf("stream ended %d bytes early", len(want))
			}
			if c.Flags&uring.More != 0 {
				r.t.Fatal("the end with More")
			}
			for len(holding) > 0 {
				release()
			}
			return starved
		default:
			if len(c.Data) != int(c.Res) {
				r.t.Fatalf("Data of %d bytes, Res %d", len(c.Data), c.Res)
			}
			if len(c.Data) > len(want) || !bytes.Equal(c.Data, want[:len(c.Data)]) {
				r.t.Fatalf("wrong bytes, %d before the end", len(want))
			}
			holding = append(holding, held{c, want[:len(c.Data)]})
			want = want[len(c.Data):]
			for len(holding) > hold {
				release()
			}
			if c.Flags&uring.More == 0 {
				user, _ = r.receive(s)
			}
		}
	}
}

// Matrix: IO-02, IO-03, RL-09
func TestReceiveRecoversFromENOBUFS(t *testing.T) {
	receiving(t, uring.Config{Buffers: 2, BufferSize: 4096}, func(t *testing.T, r *rig) {
		rnd := random(t)
		s, conn := r.plain()
		user, _ := r.receive(s)
		want := randomBytes(rnd, 256<<10)
		go func() {
			conn.Write(want)
			conn.CloseWrite()
		}()
		if starved := r.compareStream(rnd, s, user, want, 1<<20); starved == 0 {
			t.Fatal("two buffers, never released, did not run out")
		}
		if r.d.Stats().NoBuffers == 0 {
			t.Fatal("NoBuffers is not counted")
		}
	})
}

// Matrix: IO-02, IO-05
func TestReceiveReportsAReset(t *testing.T) {
	receiving(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		user, _ := r.receive(s)
		conn.SetLinger(0)
		conn.Close()
		r.expectFinal(user, unix.ECONNRESET)
	})
}
