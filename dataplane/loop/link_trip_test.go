package loop

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

func TestALinkTakesAllThatHasArrivedInOneCall(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	f.Arrive([]byte("one"), []byte("two"), []byte("three"))
	b.settle()
	for _, want := range []string{"one", "two", "three"} {
		got := make([]byte, len(want))
		must(t, b.During(func() error { return l.ReadFull(deadline(t), got) }))
		if string(got) != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
	if n := b.c.stats.LinkCalls; n != 1 {
		t.Errorf("%d calls reached the core, want 1", n)
	}
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
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s hangs", name)
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
