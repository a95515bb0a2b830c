package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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

func TestReceiveIsSupportedAsSaid(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, _ := r.plain()
		user := r.user()
		op, err := r.d.Arm(uring.KindReceive, s, user)
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

// Matrix: FR-25, SH-14, IO-05, IO-16
func TestSendRandomShapesToASlowReader(t *testing.T) {
	for _, flags := range []uring.SendFlags{0, uring.SendQuiet, uring.SendZeroCopy} {
		t.Run(fmt.Sprintf("flags %d", flags), func(t *testing.T) {
			overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
				rnd := random(t)
				s, conn := r.plain()
				smallSendBuffer(t, s)
				if flags&uring.SendQuiet != 0 {
					// The completion may wait for something else.
					r.slice = time.Millisecond
				}
				got := readSlowly(conn, rand.New(rand.NewPCG(rnd.Uint64(), 2)))
				var want []byte
				inline := 0
				for _, limit := range []int{1, 100, 5000, 200_000, 4 << 20, 64, 1 << 20} {
					pieces := randomPieces(rnd, limit)
					v := r.vec(pieces...)
					whole := slices.Concat(pieces...)
					for range 2 { // the list stays as it was
						want = append(want, whole...)
						done, user, _ := r.send(s, v, flags)
						if done {
							inline++
							r.expectNone(user)
							continue
						}
						c := r.await(user)
						if int(c.Res) != len(whole) || c.Flags&uring.More != 0 {
							t.Fatalf("send of %d bytes in %d pieces: %+v (%v)", len(whole), len(pieces), c, c.Errno())
						}
					}
				}
				t.Logf("%d bytes, %d sends done at once", len(want), inline)
				r.d.Shutdown(s)
				if data := r.receiveResult(got); !bytes.Equal(data, want) {
					t.Fatalf("the peer read %d bytes, %d were sent, or they differ", len(data), len(want))
				}
			})
		})
	}
}

// smallSendBuffer makes large sends go out in many parts. (A small receive
// buffer would, too, but a window below the 64 KiB segments of the loopback
// makes TCP wait for its persist timer, 200 ms each time.)
func smallSendBuffer(t *testing.T, s uring.Socket) {
	t.Helper()
	must(t, unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10))
}

// randomPieces has up to limit bytes in pieces of very different sizes.
func randomPieces(rnd *rand.Rand, limit int) (pieces [][]byte) {
	for rest := limit; rest > 0 && len(pieces) < uring.MaxVec; {
		n := 1 + rnd.IntN(min(rest, 1<<(1+rnd.IntN(20))))
		pieces = append(pieces, randomBytes(rnd, n))
		rest -= n
	}
	return pieces
}

// readSlowly reads to the end in small, uneven steps.
func readSlowly(conn net.Conn, rnd *rand.Rand) <-chan result {
	ch := make(chan result, 1)
	go func() {
		var all []byte
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf[:1+rnd.IntN(len(buf))])
			all = append(all, buf[:n]...)
			if err != nil {
				if err == io.EOF {
					err = nil
				}
				ch <- result{all, err}
				return
			}
		}
	}()
	return ch
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
