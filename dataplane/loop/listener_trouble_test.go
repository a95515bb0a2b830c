package loop

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever an accept fails with, when it is armed or later, the log has it once,
// however often it is tried again, and once more that it is over.
func TestWhyNothingIsAcceptedIsLoggedOnce(t *testing.T) {
	const tries = 600 // a minute
	for name, fail := range map[string]func(o *door, on bool){
		"armed": func(o *door, on bool) {
			o.d.arm = nil
			if on {
				o.d.arm = unix.ENOMEM
				if o.d.armed {
					o.d.finish(unix.ECANCELED)
				}
			}
		},
		"completed": func(o *door, on bool) {
			if on && o.d.armed {
				o.d.finish(unix.ENOMEM)
			}
		},
		"adopted": func(o *door, on bool) {
			o.d.adopt = nil
			if on {
				o.d.adopt = unix.ENOMEM
				o.d.connects()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newDoor(t)
			before := o.d.arms
			for range tries {
				fail(o, true)
				o.settle()
				o.after(acceptRetry)
			}
			if o.d.arms+o.d.adopts-before < tries {
				t.Errorf("%d attempts in a minute", o.d.arms+o.d.adopts-before)
			}
			fail(o, false)
			o.after(acceptRetry)
			o.d.connects()
			o.d.connects()
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
		o.d.finish(unix.EMFILE)
		o.settle()
		o.after(acceptRetry)
		o.d.connects()
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
		other.d.adopt = unix.ENOMEM
		told := false
		l.hand(other.c, fd, func(err error) { told = err == nil })
		other.settle()
		for range 100 {
			other.after(acceptRetry)
		}
		if !told || l.Core() != other.c || l.FD() != fd || other.d.adopts < 100 || other.logged("not accepted") != 1 {
			t.Errorf("told %v, %d attempts, log:\n%s", told, other.d.adopts, other.log)
		}
		if closed {
			other.during(l.Close)
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
				t.Errorf("the descriptor of a listener that is closed meanwhile: %v", err)
			}
			return
		}
		arms := other.d.arms
		other.d.adopt = nil
		other.d.Socks[fd] = other.d.Open()
		other.after(acceptRetry)
		if other.d.arms != arms+1 || l.outside {
			t.Errorf("not accepting: %d attempts to arm", other.d.arms-arms)
		}
		other.log.Reset()
		other.d.adopts = 0
	}
}

// The driver of its old core does not let a listener go: it is tried until it does, or
// the listener is closed.
func TestAListenerThatItsOldCoreKeepsIsTriedAgain(t *testing.T) {
	for _, closed := range []bool{false, true} {
		b, other := newDoor(t), newDoor(t)
		other.d.Socks = b.d.Socks // one machine
		b.d.detach = unix.ENOMEM
		moved := make(chan error, 1)
		go func() { moved <- b.l.Move(other.c) }()
		for b.logged("not accepted") == 0 {
			b.settle()
		}
		for range 100 {
			b.after(acceptRetry)
		}
		if b.l.Core() != b.c || b.logged("not accepted") != 1 {
			t.Errorf("on core %p, log:\n%s", b.l.Core(), b.log)
		}
		if closed {
			b.during(b.l.Close)
		}
		b.d.detach = nil
		var err error
		for waiting := true; waiting; {
			select {
			case err = <-moved:
				waiting = false
			default:
				b.after(acceptRetry)
				other.settle()
			}
		}
		if closed != (err != nil) || closed && !errors.Is(err, ErrLinkClosed) {
			t.Errorf("closed %v: %v", closed, err)
		}
		if !closed && (b.l.Core() != other.c || b.l.paused || b.l.op == 0) {
			t.Error("not accepting on its new core")
		}
	}
}
