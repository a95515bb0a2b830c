package handover

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is a connected pair of Unix sockets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

func links(t *testing.T) (predecessor, successor *Link) {
	t.Helper()
	a, b := pair(t)
	predecessor, successor = NewLink(t.Context(), a), NewLink(t.Context(), b)
	t.Cleanup(predecessor.Close)
	t.Cleanup(successor.Close)
	return predecessor, successor
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// files are so many descriptors of one pipe.
func files(t *testing.T, n int) (fds []int, r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	for range n {
		fds = append(fds, int(w.Fd()))
	}
	return fds, r, w
}

func TestAConversationBringsEverythingAcross(t *testing.T) {
	p, s := links(t)
	must(t, p.SameUser(), s.SameUser())
	session := someSession()
	must(t, s.SendHello(Hello{Entity: session.PeerEntity, AnyNonce: true}))
	h, err := p.ReadHello()
	must(t, err)
	if h.Entity != session.PeerEntity || !h.AnyNonce {
		t.Errorf("%+v", h)
	}

	const listeners = 2*filesPerCall + 1
	fds, r, w := files(t, listeners)
	must(t, p.SendOffer(Offer{Entity: h.Entity, Listeners: listeners, Steering: 1}), p.SendListeners(fds), p.SendSteering(fds[:1]))
	o, err := s.ReadOffer()
	must(t, err)
	got, err := s.ReadListeners(int(o.Listeners))
	must(t, err)
	steering, err := s.ReadSteering(int(o.Steering))
	must(t, err)
	if len(got) != listeners || len(steering) != 1 {
		t.Fatalf("%d and %d descriptors", len(got), len(steering))
	}
	// They are the same pipe: it ends when the last one is closed.
	must(t, w.Close())
	CloseFiles(got)
	if _, err := unix.Write(steering[0], []byte("x")); err != nil {
		t.Error(err)
	}
	CloseFiles(steering)
	b := make([]byte, 2)
	if n, err := r.Read(b); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if n, err := r.Read(b); n != 0 || err == nil {
		t.Errorf("a descriptor is left open: read %d, %v", n, err)
	}

	must(t, s.SendReady(), p.AwaitReady())
	sent := make(chan error, 1)
	go func() {
		n, err := p.SendSession(&session)
		sent <- errors.Join(err, p.SendDone(Done{GlobalSeq: 7, Sessions: 1, Messages: n}))
	}()
	list, d, err := s.ReadSessions()
	must(t, err, <-sent)
	if len(list) != 1 || d.GlobalSeq != 7 || list[0].Target != session.Target {
		t.Errorf("%+v, %+v", list, d)
	}
	must(t, s.Commit(), p.AwaitCommitted())
}

func TestARefusalIsReadInPlaceOfTheNextRecord(t *testing.T) {
	p, s := links(t)
	s.Refuse(errors.New("no room"))
	if _, err := p.ReadHello(); !errors.Is(err, ErrHandOver) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
}

func TestMoreDescriptorsThanALinkTakesAreNotOffered(t *testing.T) {
	p, _ := links(t)
	if err := p.SendOffer(Offer{Listeners: filesMax + 1}); !errors.Is(err, ErrHandOver) {
		t.Errorf("%v", err)
	}
}

// Whoever waits for the commit gives up at its deadline, and what the successor
// wrote before that still counts; what it writes afterwards fails.
func TestOnlyACommitInTimeCounts(t *testing.T) {
	for _, early := range []bool{true, false} {
		a, b := pair(t)
		p, s := NewLink(t.Context(), a), NewLink(t.Context(), b)
		if early {
			must(t, s.Commit())
		}
		must(t, a.SetDeadline(time.Unix(1, 0))) // as the end of the context does
		if err := p.AwaitCommitted(); (err == nil) != early {
			t.Errorf("early %v: %v", early, err)
		}
		if !early {
			if err := s.Commit(); err == nil {
				t.Error("it commits after the other side has given up")
			}
		}
		p.Close()
		s.Close()
	}
}
