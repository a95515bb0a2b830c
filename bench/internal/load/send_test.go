package load

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// socketPair returns two connected non-blocking sockets with small buffers.
func socketPair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	clitest.Must(t, err)
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	clitest.Must(t, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 8192))
	return fds[0], fds[1]
}

// sendAll flushes s into one socket and reads the other until both are empty.
func sendAll(t *testing.T, s *sender, from, to int) []byte {
	t.Helper()
	var got []byte
	buf := make([]byte, 1500)
	for {
		clitest.Must(t, s.flush(from))
		n, err := unix.Read(to, buf)
		if err == unix.EAGAIN {
			if s.pending() {
				continue
			}
			return got
		}
		clitest.Must(t, err)
		got = append(got, buf[:n]...)
	}
}

// ends are the two ends of a connection in msgr2, in msgr1, and in mode secure, and what they send.
func ends(t *testing.T, size int, do func(s *sender, in inbound)) {
	t.Helper()
	for _, tmpl := range testTemplates(t, size) {
		in := newReceiver(tmpl, false, 1)
		do(&sender{t: tmpl, tid: 1}, &in)
	}
	s, o := sealedPair(t, size)
	do(s, o)
}

func TestRequestsArriveWholeAndInOrderThroughAFullSocket(t *testing.T) {
	for _, size := range []int{1, 100, copyBelow, 50000} {
		ends(t, size, func(s *sender, in inbound) {
			from, to := socketPair(t)
			n := 0
			for range 4 {
				for range 5 {
					s.request()
				}
				if err := in.take(sendAll(t, s, from, to), 0, func(time.Duration) { n++ }); err != nil {
					t.Fatalf("size %d: %v", size, err)
				}
			}
			if n != 20 {
				t.Fatalf("size %d: %d requests arrived", size, n)
			}
		})
	}
}

func TestWithdrawTakesBackWhatWasNotBegun(t *testing.T) {
	ends(t, 100000, func(s *sender, in inbound) {
		from, to := socketPair(t)
		for range 4 {
			s.request()
		}
		clitest.Must(t, s.flush(from)) // a part of the first one
		begun := gatherEach
		if s.enc != nil {
			begun = 1
		}
		if n := s.withdraw(); n != 4-begun {
			t.Fatalf("%d taken back, want %d", n, 4-begun)
		}
		s.request() // the numbers go on
		n := 0
		clitest.Must(t, in.take(sendAll(t, s, from, to), 0, func(time.Duration) { n++ }))
		if n != begun+1 {
			t.Fatalf("%d requests arrived, want %d", n, begun+1)
		}
	})
}
