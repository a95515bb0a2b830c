package loop

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/uring"
)

// doorDriver is a fake driver whose accepts can be cancelled, as the ring's: what
// was accepted before comes first.
type doorDriver struct {
	*fakedriver.Driver
	user  uint64
	op    uring.Op
	armed bool

	arms, adopts       int
	arm, adopt, detach error // what Accept, Adopt and Detach fail with
}

func (d *doorDriver) Accept(_ uring.Socket, user uint64) (uring.Op, error) {
	if d.arms++; d.arm != nil {
		return 0, d.arm
	}
	d.user, d.op, d.armed = user, d.Op(), true
	return d.op, nil
}

func (d *doorDriver) Adopt(fd int) (uring.Socket, error) {
	if d.adopts++; d.adopt != nil {
		return uring.Socket{}, d.adopt
	}
	return d.Driver.Adopt(fd)
}

func (d *doorDriver) Detach(s uring.Socket) (int, error) {
	if d.detach != nil {
		return -1, d.detach
	}
	return d.Driver.Detach(s)
}

func (d *doorDriver) Cancel(op uring.Op) {
	if d.armed && op == d.op {
		d.finish(unix.ECANCELED)
	}
}

// Close of the listener; its accept has ended before, or ends now.
func (d *doorDriver) Close(s uring.Socket) {
	if d.armed {
		d.finish(unix.ECANCELED)
	}
	d.Driver.Close(s)
}

// finish ends the accept.
func (d *doorDriver) finish(errno unix.Errno) {
	d.armed = false
	d.Queue = append(d.Queue, uring.Completion{Kind: uring.KindAccept, User: d.user, Op: d.op, Res: -int32(errno)})
}

// connects has the ring accept one connection.
func (d *doorDriver) connects() *fakedriver.Sock {
	f := d.Open()
	d.Queue = append(d.Queue, uring.Completion{Kind: uring.KindAccept, User: d.user, Op: d.op, Res: int32(f.Sock.FD()), Flags: uring.More})
	return f
}

// door is a bed with a listener, and what the log says of it.
type door struct {
	*bed
	d      *doorDriver
	l      *Listener
	links  []*Link
	refuse bool // everybody
	log    *bytes.Buffer
}

func newDoor(t *testing.T) *door {
	t.Helper()
	o := &door{log: &bytes.Buffer{}}
	o.bed = newBed(t, func(cfg *Config, d *fakedriver.Driver) {
		o.d = &doorDriver{Driver: d}
		cfg.Open = func(int) (uring.Driver, error) { return o.d, nil }
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
	early := o.d.connects()
	done := o.posted(o.l.Close)
	late := o.d.connects() // before the core runs the task
	o.settle()
	must(t, <-done)
	if len(o.links) != 2 || early.CloseCalls+late.CloseCalls != 0 {
		t.Errorf("%d connections of 2 given away, closed %d and %d times", len(o.links), early.CloseCalls, late.CloseCalls)
	}
	if got := o.c.stats; got.Stray != 0 || got.Accepts != 2 {
		t.Errorf("%d stray completions, %d accepts", got.Stray, got.Accepts)
	}
	if o.l.open || o.d.armed {
		t.Error("the listener is open")
	}
}

func TestAListenerThatClosesDoesNotAcceptAgain(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ECANCELED, unix.EMFILE, unix.EINVAL} {
		o := newDoor(t)
		done := o.posted(o.l.Close)
		o.d.finish(errno) // whatever the accept ends with
		o.settle()
		must(t, <-done)
		o.during(o.l.Resume)
		o.after(2 * acceptRetry)
		if o.d.armed || o.l.open {
			t.Errorf("%v: armed %v, open %v", errno, o.d.armed, o.l.open)
		}
		o.during(o.l.Close)
	}
}

func TestAListenerCloses(t *testing.T) {
	for name, before := range map[string]func(o *door){
		"after a pause":        func(o *door) { o.during(o.l.Pause) },
		"between two attempts": func(o *door) { o.d.finish(unix.EMFILE); o.settle() },
		"as the core stops":    func(o *door) { o.d.armed = false }, // so that no completion comes
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
		if o.l.open {
			t.Errorf("%s: it is open", name)
		}
	}
}

// The driver says for each backend when an accept has really ended.
func TestNothingOfAListenerComesAfterItsClose(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		c := p.Core(0)
		for range 20 {
			given := make(chan *Link, 8)
			l, err := c.Listen(loopback, uring.ListenOptions{}, func(l *Link) { given <- l })
			must(t, err)
			held, let := make(chan struct{}), make(chan struct{})
			must(t, c.Do(func(*Core) { close(held); <-let }))
			<-held
			var peers []net.Conn
			for range cap(given) {
				p, err := net.Dial("tcp", l.Addr().String())
				must(t, err)
				peers = append(peers, p)
			}
			done := make(chan error, 1)
			go func() { done <- l.Close() }()
			for c.box.empty() { // the core is to find the connections and the close at once
			}
			close(let)
			must(t, <-done)
			must(t, c.call(func(c *Core) {
				if c.stats.Stray != 0 {
					t.Errorf("%d completions came too late", c.stats.Stray)
				}
			}))
			for len(given) > 0 {
				(<-given).Close()
			}
			for _, p := range peers {
				_ = p.Close()
			}
		}
	})
}
