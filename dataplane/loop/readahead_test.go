package loop

import (
	"bytes"
	"net"
	"testing"

	"github.com/ringmsgr/ringmsgr/uring"
)

// A link that is told to reads little beyond what was asked for, and still
// everything in order.
// Matrix: HI-07
func TestALinkReadsNoFurtherAheadThanItIsTold(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		if cfg.Receive == ReceiveBuffers {
			return // there, buffers of the ring that are on their way come on top
		}
		const ahead = 4 << 10
		cfg.Cores = 1
		p := newPlane(t, cfg)
		links := make(chan *Link, 1)
		ln, err := p.Core(0).Listen(loopback, uring.ListenOptions{}, func(l *Link) {
			l.ReadAhead(ahead)
			links <- l
		})
		must(t, err)
		c, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		defer c.Close()
		l := <-links
		sent := payload(3, 2<<20)
		go func() { _, _ = c.Write(sent) }()
		held := func() int {
			n := make(chan int, 1)
			must(t, p.Core(0).Do(func(*Core) { n <- l.sock.Backlog() }))
			return <-n
		}
		for held() < ahead {
		}
		never := func([]byte) bool { return false }
		must(t, l.Await(deadline(t), never)) // it holds no more
		got := make([]byte, len(sent))
		for at, n := 0, 1; at < len(got); at, n = at+n, n*2 {
			n = min(n, len(got)-at)
			must(t, l.ReadFull(deadline(t), got[at:at+n]))
			if n := held() + len(l.unread); n > 2*ahead {
				t.Fatalf("%d bytes are held back at %d", n, at)
			}
		}
		if !bytes.Equal(got, sent) {
			t.Error("bytes differ")
		}
	})
}
