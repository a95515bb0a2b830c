package uring_test

import (
	"bytes"
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
					if v.Size() != len(whole) {
						t.Fatalf("the list has %d bytes after Send, had %d", v.Size(), len(whole))
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

// The same list goes out twice, the first time in many parts.
func TestSendLeavesTheListAsItWas(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		rnd := random(t)
		s, conn := r.plain()
		smallSendBuffer(t, s)
		got := readSlowly(conn, rnd)
		big := randomBytes(rand.New(rand.NewPCG(1, 2)), 8<<20)
		v := r.vec(big[:1000], big[2000:3_000_000], big[4_000_000:])
		r.sendAll(s, v)
		r.sendAll(s, v)
		r.d.Shutdown(s)
		once := slices.Concat(big[:1000], big[2000:3_000_000], big[4_000_000:])
		if data := r.receiveResult(got); !bytes.Equal(data, slices.Concat(once, once)) {
			t.Fatalf("the peer read %d bytes, want %d, or they differ", len(data), 2*len(once))
		}
	})
}

// Matrix: SH-15, IO-05
func TestSendToAPeerThatReset(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		ready, _ := r.ready(s)
		conn.SetLinger(0)
		conn.Close()
		r.await(ready)
		var failed []unix.Errno
		for range 2 {
			done, user, _ := r.send(s, r.vec([]byte("too late")), 0)
			if done {
				t.Fatal("sent to a peer that is gone")
			}
			c := r.awaitFinal(user)
			failed = append(failed, c.Errno())
		}
		if failed[0] != unix.ECONNRESET && failed[0] != unix.EPIPE || failed[1] != unix.EPIPE {
			t.Fatalf("sends failed with %v, want ECONNRESET or EPIPE, then EPIPE", failed)
		}
	})
}

// Matrix: IO-05
func TestSendInFlightWhenThePeerResets(t *testing.T) {
	for _, flags := range []uring.SendFlags{0, uring.SendQuiet} {
		overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
			s, conn := r.plain()
			done, user, _ := r.send(s, r.vec(make([]byte, 64<<20)), flags)
			if done {
				t.Fatal("64 MiB fit into the buffers of a socket")
			}
			r.settle()
			conn.SetLinger(0)
			conn.Close()
			r.expectFinal(user, unix.ECONNRESET, unix.EPIPE)
		})
	}
}
