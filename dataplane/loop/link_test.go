package loop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// payload makes n bytes that differ by tag.
func payload(tag, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(tag*31 + i*7 + i>>8)
	}
	return p
}

func TestLinksReadAndWriteExactly(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *Plane) {
		a, b := linkPair(t, p.Core(0), p.Core(1))
		if a.LocalAddr() != b.PeerAddr() || a.PeerAddr() != b.LocalAddr() || a.Core() != p.Core(0) || b.Core() != p.Core(1) {
			t.Errorf("%v-%v and %v-%v", a.LocalAddr(), a.PeerAddr(), b.LocalAddr(), b.PeerAddr())
		}
		ctx := deadline(t)
		rng := rand.New(rand.NewPCG(1, 6))
		sent := payload(1, 1<<20)
		wrote := make(chan error, 1)
		go func() {
			rng := rand.New(rand.NewPCG(2, 6))
			for p := sent; len(p) > 0; {
				n := min(1+rng.IntN(1<<rng.IntN(19)), len(p))
				if err := a.Write(ctx, p[:n]); err != nil {
					wrote <- err
					return
				}
				p = p[n:]
			}
			wrote <- a.Write(ctx, nil)
		}()
		var got []byte
		for len(got) < len(sent) {
			q := make([]byte, min(rng.IntN(1<<rng.IntN(19)), len(sent)-len(got)))
			must(t, b.ReadFull(ctx, q))
			got = append(got, q...)
		}
		must(t, <-wrote)
		if !bytes.Equal(got, sent) {
			t.Error("bytes differ")
		}
		a.Close()
		if err := b.ReadFull(ctx, make([]byte, 1)); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read at the end: %v", err)
		}
		if err := b.Write(ctx, []byte{1}); !errors.Is(err, ErrLinkClosed) {
			t.Errorf("write after an error: %v", err)
		}
	})
}

func TestAnEndInTheMiddleOfAReadIsUnexpected(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		for _, first := range []bool{false, true} { // the bytes come before or in the read
			l, c := netPair(t, p.Core(0))
			result := make(chan error, 1)
			read := func() { result <- l.ReadFull(deadline(t), make([]byte, 10)) }
			if !first {
				go read()
			}
			_, err := c.Write([]byte("short"))
			must(t, err)
			must(t, c.Close())
			if first {
				go read()
			}
			if err := <-result; !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v", err)
			}
		}
	})
}

// After the end of its context a call has let go of the caller's memory: the
// race detector sees whether the core still writes to it.
func TestACancelledCallLetsGoOfTheCallersMemory(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		cause := errors.New("enough")
		for i := range 30 {
			l, c := netPair(t, p.Core(0))
			ctx, cancel := context.WithCancelCause(context.Background())
			buf := make([]byte, 1<<20)
			result := make(chan error, 1)
			go func() {
				var err error
				if i%2 == 0 {
					err = l.ReadFull(ctx, buf)
				} else {
					err = l.Write(ctx, buf[:cap(buf)])
					for err == nil {
						err = l.Write(ctx, buf)
					}
				}
				for j := range buf {
					buf[j]++ // ours again
				}
				result <- err
			}()
			if i%2 == 0 {
				_, err := c.Write(make([]byte, i*1000))
				must(t, err)
			}
			cancel(cause)
			go func() { _, _ = c.Write(make([]byte, 100000)) }()
			if err := await(t, result); !errors.Is(err, cause) {
				t.Fatalf("round %d: %v", i, err)
			}
			if err := l.ReadFull(context.Background(), make([]byte, 1)); err == nil {
				t.Fatal("the link is usable after a cancelled call")
			}
			c.Close()
		}
	})
}

func TestClosingThePlaneEndsEveryCallOnALink(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		reading, _ := netPair(t, p.Core(0))
		writing, _ := netPair(t, p.Core(0))
		to := drivertest.FullListener(t, t.Cleanup)
		results := make(chan error, 3)
		go func() { results <- reading.ReadFull(context.Background(), make([]byte, 1)) }()
		go func() {
			for {
				if err := writing.Write(context.Background(), make([]byte, 1<<20)); err != nil {
					results <- err
					return
				}
			}
		}()
		go func() {
			_, err := p.Core(0).Dial(context.Background(), netip.AddrPort{}, to, uring.SocketOptions{})
			results <- err
		}()
		for stats(t, p.Core(0)).Sockets < 3 {
		}
		p.Close()
		for range 3 {
			if err := await(t, results); !errors.Is(err, ErrStopped) && !errors.Is(err, ErrLinkClosed) {
				t.Errorf("%v", err)
			}
		}
		if err := reading.ReadFull(context.Background(), make([]byte, 1)); !errors.Is(err, ErrStopped) {
			t.Errorf("read on a closed plane: %v", err)
		}
		reading.Close()
		if _, err := p.Core(0).Dial(context.Background(), netip.AddrPort{}, to, uring.SocketOptions{}); !errors.Is(err, ErrStopped) {
			t.Errorf("dial on a closed plane: %v", err)
		}
		if _, err := p.Core(0).Listen(loopback, uring.ListenOptions{}, func(*Link) {}); !errors.Is(err, ErrStopped) {
			t.Errorf("listen on a closed plane: %v", err)
		}
	})
}

// Matrix: SH-14
func TestAListenerReportsAddressesInUse(t *testing.T) {
	p := newPlane(t, Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	first, err := p.Core(0).Listen(loopback, uring.ListenOptions{ReusePort: true}, func(*Link) {})
	must(t, err)
	if first.Core() != p.Core(0) || first.FD() < 0 {
		t.Error("the listener does not know itself")
	}
	second, err := p.Core(1).Listen(first.Addr(), uring.ListenOptions{ReusePort: true}, func(*Link) {})
	must(t, err)
	if _, err := p.Core(1).Listen(first.Addr(), uring.ListenOptions{}, func(*Link) {}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("%v", err)
	}
	must(t, first.Close())
	must(t, first.Close())
	must(t, second.Close())
	if _, err := p.Core(0).Dial(deadline(t), netip.AddrPort{}, first.Addr(), uring.SocketOptions{}); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after Close: %v", err)
	}
}

// Who takes over a link whose socket has ended meanwhile hears why.
func TestALinkThatHasEndedSaysWhy(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	f.Errno = unix.ETIMEDOUT
	f.Edge(0)
	b.settle()
	if err := l.Carry(nil); !errors.Is(err, ErrLinkClosed) || !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("error %v", err)
	}
	if err := l.Cause(); err != ErrLinkClosed {
		t.Errorf("once more: %v", err)
	}
}

// The socket ends while the answer to a call has not been taken yet: the next call
// hears why.
func TestTheCallBehindAnAnswerHearsWhyTheSocketEnded(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	l.answer(reply{unread: []byte("x")})
	f.Errno = unix.ENOMEM
	f.Edge(unix.POLLERR)
	b.settle()
	if r := <-l.result; r.err != nil || string(r.unread) != "x" {
		t.Fatalf("answer %q, %v", r.unread, r.err)
	}
	if err := b.During(func() error { return l.Write(deadline(t), []byte("y")) }); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("%v, want what the socket ended with", err)
	}
}

// A write ends when the kernel has all bytes, those that a read has sent included, and takes no
// byte of the peer.
func TestAWriteOnALinkWaitsForTheKernel(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	f.Park = true
	waits := func(call func() error) (done chan error) {
		done = make(chan error, 1)
		go func() { done <- call() }()
		if b.TurnUntil(func() bool { return l.sock.call != nil || len(done) > 0 }); len(done) > 0 {
			t.Fatalf("it has not waited: %v", <-done)
		}
		return done
	}
	read := func(want string) {
		t.Helper()
		p := make([]byte, 1)
		if must(t, b.During(func() error { return l.ReadFull(deadline(t), p) })); string(p) != want {
			t.Errorf("read %q, want %q", p, want)
		}
	}
	write := waits(func() error { return l.Write(deadline(t), []byte("a")) })
	f.Arrive([]byte("x"))
	b.settle()
	f.Finish(0)
	b.settle()
	must(t, await(t, write))
	read("x")
	l.Queue([]byte("b"))
	f.Arrive([]byte("y"))
	read("y")
	flush := waits(func() error { return l.Flush(deadline(t)) })
	f.Finish(0)
	b.settle()
	if must(t, await(t, flush)); string(f.Sent) != "ab" {
		t.Errorf("sent %q", f.Sent)
	}
}

// newOwner takes over a link, and hears of the end of its socket.
type newOwner struct{ ended []error }

func (*newOwner) Feed(_ *Socket, p []byte) Taken { return Taken{Bytes: len(p)} }
func (*newOwner) Pending(*Socket) bool           { return false }
func (*newOwner) Gather(*Socket, *Write) error   { return nil }
func (h *newOwner) Ended(_ *Socket, err error)   { h.ended = append(h.ended, err) }

// What a link has queued is written as it is carried: if that ends the socket, the
// framer hears of it.
func TestWhoCarriesALinkHearsOfAWriteThatEndsIt(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	l.Queue([]byte("last words"))
	f.Refuse = unix.ECONNRESET
	var h newOwner
	if err := l.Carry(&h); err != nil {
		t.Errorf("Carry: %v", err)
	}
	b.settle()
	if len(h.ended) != 1 || !errors.Is(h.ended[0], unix.ECONNRESET) {
		t.Errorf("the framer has heard %v", h.ended)
	}
	if n := b.c.stats.Handlers; n != 0 {
		t.Errorf("%d framers are counted", n)
	}
}

// A link reads little beyond what it was told, and still everything in order.
// Matrix: HI-07
func TestALinkReadsNoFurtherAheadThanItIsTold(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores = 1
		p := newPlane(t, cfg)
		for _, ahead := range []int{BacklogBytes, 4 << 10} {
			most := 2 * ahead
			if ahead == BacklogBytes { // neither part's last read is cut
				most += 2 * ReceiveBytes
			}
			if cfg.Receive == ReceiveBuffers { // what is on its way in buffers of the ring comes on top
				most += 1 << 20
			}
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
			sent := payload(3, 4<<20)
			go func() { _, _ = c.Write(sent); _ = c.(*net.TCPConn).CloseWrite() }()
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
			for at, n := 0, 1; at < len(got); at, n = at+n, min(n*2, 64<<10) {
				n = min(n, len(got)-at)
				must(t, l.ReadFull(deadline(t), got[at:at+n]))
				if n := held() + len(l.unread); n > most {
					t.Fatalf("%d bytes are held back at %d", n, at)
				}
			}
			if !bytes.Equal(got, sent) {
				t.Error("bytes differ")
			}
			if err := l.ReadFull(deadline(t), got[:1]); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v", err)
			}
		}
	})
}

func TestAQueuedWriteLeavesWithTheNextCallThatWaits(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	f.Arrive([]byte("first"))
	b.settle()
	got := make([]byte, 2)
	must(t, b.During(func() error { return l.ReadFull(deadline(t), got) }))
	l.Queue([]byte("AB"))
	must(t, b.During(func() error { return l.ReadFull(deadline(t), got) })) // does not wait
	l.Queue([]byte("CD"))
	if len(f.Sent) != 0 {
		t.Fatalf("%q is sent already", f.Sent)
	}
	done := make(chan error, 1)
	go func() { done <- l.ReadFull(deadline(t), got) }() // "t", and one that is not there
	b.TurnUntil(func() bool { return f.Sent != nil })
	f.Arrive([]byte("x"))
	b.TurnUntil(func() bool { return len(done) == 1 })
	must(t, <-done)
	if string(f.Sent) != "ABCD" || f.Writes != 1 || string(got) != "tx" {
		t.Errorf("sent %q in %d writes, read %q", f.Sent, f.Writes, got)
	}
	l.Queue([]byte("E"))
	must(t, b.During(func() error { return l.Write(deadline(t), []byte("F")) }))
	l.Queue([]byte("G"))
	must(t, b.During(func() error { return l.Flush(deadline(t)) }))
	must(t, l.Flush(deadline(t))) // has nothing to do
	if string(f.Sent) != "ABCDEFG" || b.c.stats.LinkCalls != 4 {
		t.Errorf("sent %q with %d calls", f.Sent, b.c.stats.LinkCalls)
	}
}

func TestAwaitEndsWithEnoughOrTheEndOrAFullLink(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		l, c := netPair(t, p.Core(0))
		_, err := c.Write([]byte("some"))
		must(t, err)
		asked := 0
		must(t, l.Await(deadline(t), func(unread []byte) bool {
			if asked++; asked == 1 {
				return false // nothing is taken yet
			}
			return string(unread) == "some"
		}))
		before := stats(t, p.Core(0)).LinkCalls
		must(t, l.Await(deadline(t), func(unread []byte) bool { return string(unread) == "some" }))
		if n := stats(t, p.Core(0)).LinkCalls - before; n != 0 {
			t.Errorf("%d calls for what is there", n)
		}
		go func() { _, _ = c.Write(make([]byte, 2*BacklogBytes)); _ = c.CloseWrite() }()
		never := func([]byte) bool { return false }
		must(t, l.Await(deadline(t), never))
		if n := len(l.unread); n < BacklogBytes {
			t.Errorf("gave up with %d bytes", n)
		}
		must(t, l.ReadFull(deadline(t), make([]byte, 4+2*BacklogBytes)))
		must(t, l.Await(deadline(t), never)) // the end
		if err := l.ReadFull(deadline(t), make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	})
}

// A core that stands still holds up nobody beyond the deadline, and does not
// carry out later what nobody waits for.
func TestCallsOnALinkOfAStalledCoreEndWithTheirContext(t *testing.T) {
	p := newPlane(t, Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}})
	reading, _ := netPair(t, p.Core(0))
	writing, peer := netPair(t, p.Core(0))
	waiting, _ := netPair(t, p.Core(0))
	closing, end := netPair(t, p.Core(0))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	to := netip.MustParseAddrPort(ln.Addr().String())
	release := block(t, p.Core(0))
	calls := map[string]func(context.Context) error{
		"read":  func(ctx context.Context) error { return reading.ReadFull(ctx, make([]byte, 1)) },
		"write": func(ctx context.Context) error { return writing.Write(ctx, []byte("late")) },
		"await": func(ctx context.Context) error { return waiting.Await(ctx, func([]byte) bool { return false }) },
		"dial": func(ctx context.Context) error {
			_, err := p.Core(0).Dial(ctx, netip.AddrPort{}, to, uring.SocketOptions{})
			return err
		},
		"close": func(context.Context) error { closing.Close(); return context.DeadlineExceeded },
	}
	for name, call := range calls {
		ended := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			ended <- call(ctx)
		}()
		if err := await(t, ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	release()
	for stats(t, p.Core(0)).Sockets > 0 { // it closes them all
	}
	for _, c := range []*net.TCPConn{peer, end} {
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		if _, err := c.Read(make([]byte, 10)); err == nil {
			t.Error("a call that was given up has sent something")
		}
	}
	must(t, ln.(*net.TCPListener).SetDeadline(time.Now().Add(50*time.Millisecond)))
	if c, err := ln.Accept(); err == nil {
		c.Close()
		t.Error("a dial that was given up reached its peer")
	}
}
