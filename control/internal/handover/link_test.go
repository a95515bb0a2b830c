package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/wire"
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
	must(t, s.SendHello(Hello{Entity: session.Peer.Entity, AnyNonce: true}))
	h, err := p.ReadHello()
	must(t, err)
	if h.Entity != session.Peer.Entity || !h.AnyNonce {
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
		sent <- errors.Join(err, p.SendDone(Done{Last: Attempts{Msgr2: 7}, Sessions: 1, Messages: n}))
	}()
	list, d, err := s.ReadSessions()
	must(t, err, <-sent)
	if len(list) != 1 || d.Last.Msgr2 != 7 || list[0].Peer.Target != session.Peer.Target {
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

// fakeOffer is the successor's link with a predecessor that does everything right.
type fakeOffer struct {
	*journal
	offer Offer
}

func (l *fakeOffer) SameUser() error         { return l.call("same user") }
func (l *fakeOffer) SendHello(h Hello) error { return l.call("send hello", h.Entity) }
func (l *fakeOffer) ReadOffer() (Offer, error) {
	return l.offer, l.call("read offer")
}
func (l *fakeOffer) ReadListeners(n int) ([]int, error) {
	return make([]int, n), l.call("read listeners", n)
}
func (l *fakeOffer) ReadSteering(n int) ([]int, error) {
	return make([]int, n), l.call("read steering", n)
}
func (l *fakeOffer) SendReady() error { return l.call("send ready") }
func (l *fakeOffer) ReadSessions() ([]Session, Done, error) {
	return make([]Session, 4), Done{Last: Attempts{Msgr2: 1000}}, l.call("read sessions")
}
func (l *fakeOffer) Commit() error { return l.call("commit") }
func (l *fakeOffer) Refuse(error)  { _ = l.call("refuse") }

// fakeSuccessor can do everything.
type fakeSuccessor struct {
	*journal
	hello  Hello
	undone error
}

func (s *fakeSuccessor) Hello() (Hello, error)     { return s.hello, s.call("hello") }
func (s *fakeSuccessor) Start(o Offer) error       { return s.call("start", o.Entity, o.Nonce) }
func (s *fakeSuccessor) Listeners(fds []int) error { return s.call("listeners", len(fds)) }
func (s *fakeSuccessor) Steering(fds []int) error  { return s.call("steering", len(fds)) }
func (s *fakeSuccessor) Restore(_ Offer, list []Session, last Attempts) error {
	return s.call("restore", len(list), "from", last.Msgr2)
}
func (s *fakeSuccessor) Begin()      { _ = s.call("begin") }
func (s *fakeSuccessor) Undo() error { _ = s.call("undo"); return s.undone }

func taking(fail int) (*fakeSuccessor, *fakeOffer) {
	j := &journal{fail: fail}
	return &fakeSuccessor{journal: j, hello: Hello{Entity: who, AnyNonce: true}},
		&fakeOffer{journal: j, offer: Offer{Entity: who, Nonce: 9, Listeners: 3, Steering: 2}}
}

func TestTheSuccessorTakesItsStepsInTheirOrder(t *testing.T) {
	s, l := taking(0)
	must(t, take(t.Context(), l, s))
	want := []string{
		"hello", "same user", "send hello osd.3", "read offer", "start osd.3 9",
		"read listeners 3", "listeners 3", "read steering 2", "steering 2", "send ready",
		"read sessions", "restore 4 from 66536", "commit", "begin",
	}
	if !slices.Equal(s.calls, want) {
		t.Errorf("%q", s.calls)
	}
}

func TestWhateverFailsAtTheSuccessorIsUndoneAndSaidAndNothingBegins(t *testing.T) {
	s, l := taking(0)
	must(t, take(t.Context(), l, s))
	for i, call := range s.calls {
		if call == "begin" {
			continue
		}
		s, l := taking(i + 1)
		s.undone = errors.New("cannot be undone")
		err := take(t.Context(), l, s)
		if !errors.Is(err, errPlanned) || !errors.Is(err, s.undone) {
			t.Errorf("%s fails: %v", call, err)
		}
		if got := s.calls[i+1:]; !slices.Equal(got, []string{"refuse", "undo"}) {
			t.Errorf("%s fails, then come %q", call, got)
		}
	}
}

func TestTheErrorOfATakeOverSaysWhyItsContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errPlanned)
	s, l := taking(0)
	l.offer.Nonce = 8
	s.hello = Hello{Entity: who, Nonce: 7}
	err := take(ctx, l, s)
	if !errors.Is(err, errPlanned) || !errors.Is(err, ErrHandOver) || !strings.Contains(err.Error(), "osd.3") || s.count("start") != 0 {
		t.Errorf("%v, %q", err, s.calls)
	}
	l.offer = Offer{Entity: wire.EntityName{Type: wire.OSD, ID: "4"}, Nonce: 7}
	if err := take(t.Context(), l, s); !errors.Is(err, ErrHandOver) || s.count("start") != 0 {
		t.Errorf("another entity: %v", err)
	}
}

// asNobody runs f as a user that neither we nor root are: the thread, not the process.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	const same, nobody = ^uintptr(0), 65534
	runtime.LockOSThread()
	become := func(user uintptr) unix.Errno {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, user, same)
		return errno
	}
	own := uintptr(os.Geteuid())
	if errno := become(nobody); errno != 0 {
		runtime.UnlockOSThread()
		t.Skipf("only root can be somebody else: %v", errno)
	}
	defer func() {
		if errno := become(own); errno != 0 {
			t.Fatalf("user %d again: %v", own, errno) // the thread ends with the goroutine
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// An abstract socket lets anybody in: the kernel notes who listened and who connected.
func TestAHandOverIsNotForAnotherUser(t *testing.T) {
	asNobody(t, func() {}) // or skip
	us, them := func(f func()) { f() }, func(f func()) { asNobody(t, f) }
	for name, c := range map[string]struct{ listen, connect func(func()) }{"it connects": {us, them}, "it listens": {them, us}} {
		t.Run(name, func(t *testing.T) {
			var l net.Listener
			var from, to net.Conn
			var err error
			c.listen(func() { l, err = net.Listen("unix", fmt.Sprintf("@ringmsgr-test-%d", os.Getpid())) })
			must(t, err)
			defer l.Close()
			c.connect(func() { from, err = net.Dial("unix", l.Addr().String()) })
			must(t, err)
			defer from.Close()
			to, err = l.Accept()
			must(t, err)
			defer to.Close()
			ours := map[string]net.Conn{"it connects": to, "it listens": from}[name]
			link := NewLink(t.Context(), ours.(*net.UnixConn))
			defer link.Close()
			if err := link.SameUser(); !errors.Is(err, os.ErrPermission) || !errors.Is(err, ErrHandOver) {
				t.Errorf("let in: %v", err)
			}
		})
	}
}
