package load

import (
	"slices"
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
func sendAll(t *testing.T, s outbound, from, to int) []byte {
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

func TestRequestsArriveWholeAndInOrderThroughAFullSocket(t *testing.T) {
	for _, tmpl := range slices.Concat(testTemplates(t, 1), testTemplates(t, 100), testTemplates(t, copyBelow), testTemplates(t, 50000)) {
		size := len(tmpl.payload)
		from, to := socketPair(t)
		s := newSender(tmpl, false, 1, 5)
		r := newReceiver(tmpl, false, 1)
		n := 0
		for range 4 {
			for range 5 {
				s.request()
			}
			if err := r.take(sendAll(t, &s, from, to), 0, func(time.Duration) { n++ }); err != nil {
				t.Fatalf("size %d: %v", size, err)
			}
		}
		if n != 20 {
			t.Fatalf("size %d: %d requests arrived", size, n)
		}
	}
}

func TestWithdrawTakesBackWhatWasNotBegun(t *testing.T) {
	tmpl := testTemplate(t, 100000)
	from, to := socketPair(t)
	s := newSender(tmpl, false, 1, 4)
	for range 4 {
		s.request()
	}
	if err := s.flush(from); err != nil { // a part of the first one
		t.Fatal(err)
	}
	if n := s.withdraw(); n != 3 {
		t.Fatalf("%d taken back, want 3", n)
	}
	s.request()
	r := newReceiver(tmpl, false, 1)
	n := 0
	clitest.Must(t, r.take(sendAll(t, &s, from, to), 0, func(time.Duration) { n++ }))
	if n != 2 {
		t.Fatalf("%d requests arrived, want 2", n)
	}
}
