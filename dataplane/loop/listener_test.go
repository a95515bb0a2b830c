package loop

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/uring"
)

// door is a bed with a listener, of which requests fail, and what the log says of it.
type door struct {
	*bed
	l      *Listener
	at     *fakedriver.Sock // of the listener
	links  []*Link
	refuse bool // everybody
	log    *bytes.Buffer
	asked  map[faulty.Request]int
	fails  map[faulty.Request]unix.Errno
}

func newDoor(t *testing.T) *door {
	t.Helper()
	o := &door{log: &bytes.Buffer{}, asked: map[faulty.Request]int{}, fails: map[faulty.Request]unix.Errno{}}
	o.bed = newBed(t, func(cfg *Config, d *fakedriver.Driver) {
		cfg.Open = func(int) (uring.Driver, error) {
			return faulty.New(d, func(r faulty.Request) faulty.Fault { o.asked[r]++; return faulty.Fault{Errno: o.fails[r]} }), nil
		}
		cfg.Logger = slog.New(slog.NewTextHandler(o.log, nil))
	})
	o.during(func() (err error) {
		o.l, err = o.c.Listen(netip.AddrPort{}, uring.ListenOptions{}, func(l *Link) {
			if o.links = append(o.links, l); o.refuse {
				l.Refuse()
			}
		})
		return err
	})
	o.at = o.d.Socks[o.l.FD()]
	return o
}

func (o *door) logged(what string) int { return strings.Count(o.log.String(), what) }

// during runs f, which must succeed, while the core turns.
func (o *door) during(f func() error) {
	o.t.Helper()
	must(o.t, o.During(f))
}

// posted runs f on another goroutine until it has given the core its task.
func (o *door) posted(f func() error) (done chan error) {
	done = make(chan error, 1)
	go func() { done <- f() }()
	for o.c.box.empty() {
		select {
		case err := <-done:
			o.t.Fatalf("it did not ask the core: %v", err)
		default:
		}
	}
	return done
}

// Matrix: IO-04
func TestAClosingListenerGivesAwayWhatTheRingHasAccepted(t *testing.T) {
	o := newDoor(t)
	early := o.at.Connects()
	done := o.posted(o.l.Close)
	late := o.at.Connects() // before the core runs the task
	o.settle()
	must(t, <-done)
	if len(o.links) != 2 || early.CloseCalls+late.CloseCalls != 0 {
		t.Errorf("%d connections of 2 given away, closed %d and %d times", len(o.links), early.CloseCalls, late.CloseCalls)
	}
	if got := o.c.stats; got.Stray != 0 || got.Accepts != 2 {
		t.Errorf("%d stray completions, %d accepts", got.Stray, got.Accepts)
	}
	if o.l.open || o.at.Accepting {
		t.Error("the listener is open")
	}
}

func TestAListenerCloses(t *testing.T) {
	for name, before := range map[string]func(o *door){
		"while it accepts":     func(*door) {},
		"after a pause":        func(o *door) { o.during(o.l.Pause) },
		"between two attempts": func(o *door) { o.at.EndAccept(unix.EMFILE); o.settle() },
		"as the core stops":    func(o *door) { o.at.Accepting = false }, // so that no completion comes
	} {
		o := newDoor(t)
		before(o)
		done := o.posted(o.l.Close)
		o.settle()
		if name == "as the core stops" {
			o.p.Close()
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "as the core stops" {
			o.during(o.l.Resume) // nothing
			o.after(2 * acceptRetry)
		}
		if o.at.Accepting || o.l.open {
			t.Errorf("%s: armed %v, open %v", name, o.at.Accepting, o.l.open)
		}
	}
}

// newRefusing makes a listener that refuses everybody.
func newRefusing(t *testing.T) *door {
	o := newDoor(t)
	o.refuse = true
	return o
}

// Matrix: AIM-05
func TestAListenerThatRefusesManyPausesInBetween(t *testing.T) {
	o := newRefusing(t)
	const seconds = 2
	for range seconds * 10_000 {
		for range 5 { // 50 000 a second
			if o.at.Accepting {
				o.at.Connects()
				o.settle()
			}
		}
		o.after(100 * time.Microsecond)
	}
	per := time.Second / perRefusal
	if n := time.Duration(len(o.links)); n > seconds*per+per/10 || n < seconds*per*8/10 {
		t.Errorf("%d refused in %d s, want about %d", n, seconds, seconds*per)
	}
	if st := o.c.stats; st.Refused != uint64(len(o.links)) || st.AcceptPauses == 0 || st.Stray != 0 || st.Sockets != 0 {
		t.Errorf("%d refused, %d pauses, %d stray, %d sockets", st.Refused, st.AcceptPauses, st.Stray, st.Sockets)
	}
}

// Whatever an accept fails with, when it is armed or later, the log has it once,
// however often it is tried again, and once more that it is over.
func TestWhyNothingIsAcceptedIsLoggedOnce(t *testing.T) {
	const tries = 600 // a minute
	for name, fail := range map[string]func(o *door, on bool){
		"armed": func(o *door, on bool) {
			delete(o.fails, faulty.Accept)
			if on {
				o.fails[faulty.Accept] = unix.ENOMEM
				o.at.EndAccept(unix.ECANCELED)
			}
		},
		"completed": func(o *door, on bool) {
			if on {
				o.at.EndAccept(unix.ENOMEM)
			}
		},
		"adopted": func(o *door, on bool) {
			delete(o.fails, faulty.Adopt)
			if on {
				o.fails[faulty.Adopt] = unix.ENOMEM
				o.at.Connects()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newDoor(t)
			before := o.asked[faulty.Accept]
			for range tries {
				fail(o, true)
				o.settle()
				o.after(acceptRetry)
			}
			if n := o.asked[faulty.Accept] + o.asked[faulty.Adopt] - before; n < tries {
				t.Errorf("%d attempts in a minute", n)
			}
			fail(o, false)
			o.after(acceptRetry)
			o.at.Connects()
			o.at.Connects()
			o.settle()
			if len(o.links) != 2 {
				t.Errorf("%d connections of 2", len(o.links))
			}
			if o.logged("not accepted") != 1 || o.logged(unix.ENOMEM.Error()) != 1 || o.logged("accepted again") != 1 {
				t.Errorf("the log says:\n%s", o.log)
			}
		})
	}
}

// Descriptors come back one by one, each just enough for one connection: the log
// does not get a line for each of them.
func TestAListenerAtTheLimitWritesTenLinesAMinute(t *testing.T) {
	o := newDoor(t)
	for range 10 * 600 {
		o.at.EndAccept(unix.EMFILE)
		o.settle()
		o.after(acceptRetry)
		o.at.Connects()
		o.settle()
	}
	if len(o.links) != 6000 {
		t.Errorf("%d connections of 6000", len(o.links))
	}
	const minutes = 10
	for _, cause := range []string{"not accepted", "accepted again"} {
		if n := o.logged(cause); n > (minutes+1)*LinesPerMinute || n < minutes {
			t.Errorf("%d lines %q in %d minutes", n, cause, minutes)
		}
	}
}

// The driver of its new core does not take a listener: it is tried until it does.
func TestAListenerThatItsNewCoreRefusesIsTriedAgain(t *testing.T) {
	b := newDoor(t)
	other := newDoor(t)
	file, err := os.Open(os.DevNull)
	must(t, err)
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	for _, closed := range []bool{false, true} {
		l := newListener(b.c, netip.AddrPort{}, func(*Link) {})
		other.fails[faulty.Adopt] = unix.ENOMEM
		told := false
		l.hand(other.c, fd, func(err error) { told = err == nil })
		other.settle()
		for range 100 {
			other.after(acceptRetry)
		}
		if !told || l.Core() != other.c || l.FD() != fd || other.asked[faulty.Adopt] < 100 || other.logged("not accepted") != 1 {
			t.Errorf("told %v, %d attempts, log:\n%s", told, other.asked[faulty.Adopt], other.log)
		}
		if closed {
			other.during(l.Close)
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
				t.Errorf("the descriptor of a listener that is closed meanwhile: %v", err)
			}
			return
		}
		arms := other.asked[faulty.Accept]
		delete(other.fails, faulty.Adopt)
		other.d.Socks[fd] = other.d.Open()
		other.after(acceptRetry)
		if n := other.asked[faulty.Accept]; n != arms+1 || l.outside {
			t.Errorf("not accepting: %d attempts to arm", n-arms)
		}
		other.log.Reset()
		delete(other.asked, faulty.Adopt)
	}
}

// The driver of its old core does not let a listener go: it is tried until it does, or
// the listener is closed.
func TestAListenerThatItsOldCoreKeepsIsTriedAgain(t *testing.T) {
	for _, closed := range []bool{false, true} {
		b, other := newDoor(t), newDoor(t)
		other.d.Socks = b.d.Socks // one machine
		b.fails[faulty.Detach] = unix.ENOMEM
		moved := make(chan error, 1)
		go func() { moved <- b.l.Move(other.c) }()
		b.TurnUntil(func() bool { return b.logged("not accepted") > 0 })
		for range 100 {
			b.after(acceptRetry)
		}
		if b.l.Core() != b.c || b.logged("not accepted") != 1 {
			t.Errorf("on core %p, log:\n%s", b.l.Core(), b.log)
		}
		if closed {
			b.during(b.l.Close)
		}
		delete(b.fails, faulty.Detach)
		b.TurnUntil(func() bool {
			b.after(acceptRetry)
			other.settle()
			return len(moved) > 0
		})
		err := <-moved
		if closed != (err != nil) || closed && !errors.Is(err, ErrLinkClosed) {
			t.Errorf("closed %v: %v", closed, err)
		}
		if !closed && (b.l.Core() != other.c || b.l.paused || b.l.op == 0) {
			t.Error("not accepting on its new core")
		}
	}
}

// A callback that ends the goroutine of its core ends the other connections of that turn, too.
func TestAConnectionBehindTheEndOfItsCoreIsClosed(t *testing.T) {
	p := newPlane(t, Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}})
	l, err := p.Core(0).Listen(loopback, uring.ListenOptions{}, func(*Link) { runtime.Goexit() })
	must(t, err)
	release := block(t, p.Core(0))
	var conns [3]net.Conn
	for i := range conns {
		conns[i], err = net.Dial("tcp", l.Addr().String())
		must(t, err)
		must(t, conns[i].SetDeadline(time.Now().Add(patience)))
	}
	release()
	for i, conn := range conns {
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %v", i, err)
		}
		conn.Close()
	}
}
