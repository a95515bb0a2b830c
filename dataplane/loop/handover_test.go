package loop

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

func TestListenerMovesToAnotherPlaneWithItsQueue(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores = 1
		old, next := newPlane(t, cfg), newPlane(t, cfg)
		first, second := make(chan *Link, 10), make(chan *Link, 10)
		l, err := old.Core(0).Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{}, func(l *Link) { first <- l })
		must(t, err)
		fd, err := l.Descriptor()
		must(t, err)
		successor, err := next.Core(0).AdoptListener(fd, func(l *Link) { second <- l })
		must(t, err)
		if successor.Addr() != l.Addr() {
			t.Errorf("adopted %v, want %v", successor.Addr(), l.Addr())
		}
		dial := func() net.Conn {
			c, err := net.Dial("tcp", l.Addr().String())
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		take := func(from chan *Link) {
			t.Helper()
			select {
			case l := <-from:
				l.Close()
			case <-time.After(10 * time.Second):
				t.Fatal("not accepted")
			}
		}
		dial()
		take(first)
		for range 3 {
			must(t, l.Pause())
			c := dial()
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || len(first)+len(second) != 0 {
				t.Errorf("a paused listener: %v, accepted %d and %d", err, len(first), len(second))
			}
			must(t, l.Resume())
			take(first)
		}
		must(t, l.Pause())
		dial() // waits in the queue
		must(t, l.Close())
		must(t, successor.Resume())
		take(second)
		dial()
		take(second)
		if err := l.Share(); !errors.Is(err, ErrLinkClosed) {
			t.Errorf("Share of a closed listener: %v", err)
		}
		if _, err := l.Descriptor(); !errors.Is(err, ErrLinkClosed) {
			t.Errorf("Descriptor of a closed listener: %v", err)
		}
		if len(first) != 0 {
			t.Error("the old listener accepted behind its end")
		}
	})
}

func TestAdoptListenerRefusesWhatDoesNotListen(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		for name, family := range map[string][2]int{
			"datagram": {unix.AF_INET, unix.SOCK_DGRAM}, "not listening": {unix.AF_INET, unix.SOCK_STREAM}, "unix": {unix.AF_UNIX, unix.SOCK_STREAM},
		} {
			fd, err := unix.Socket(family[0], family[1]|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			if _, err := p.Core(0).AdoptListener(fd, nil); !errors.Is(err, errNotListening) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
				t.Errorf("%s: the descriptor is still open: %v", name, err)
			}
		}
		if _, err := p.Core(0).AdoptListener(-1, nil); !errors.Is(err, errNotListening) {
			t.Errorf("no descriptor: %v", err)
		}
	})
}
