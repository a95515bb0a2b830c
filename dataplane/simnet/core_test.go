package simnet_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestCoresOfAHostMoveOnlyWhenTheyAreTurned(t *testing.T) {
	n := simnet.New(1, simnet.Options{})
	cfg := loop.Config{Cores: 2}
	var cores []*simnet.Core
	n.Host(netip.MustParseAddr("10.0.0.1")).Run(&cfg, func(c *simnet.Core) { cores = append(cores, c) })
	p, err := loop.New(cfg)
	must(t, err)
	if len(cores) != 2 || cores[0].Core != p.Core(0) || cores[1].Core != p.Core(1) {
		t.Fatalf("given %v", cores)
	}
	c := cores[0]
	if _, armed := c.Deadline(); armed || c.Busy() {
		t.Error("a new core has something to do")
	}
	var fired time.Duration
	timer := &loop.Timer{Fire: func(_ *loop.Core, now time.Duration) { fired = now }}
	must(t, c.Do(func(c *loop.Core) { c.Arm(timer, c.Now()+time.Second) }))
	if !c.Busy() || cores[1].Busy() {
		t.Errorf("busy: %v, %v", c.Busy(), cores[1].Busy())
	}
	must(t, c.Turn())
	at, armed := c.Deadline()
	if !armed || at != time.Second || fired != 0 {
		t.Errorf("due at %v (%v), fired at %v", at, armed, fired)
	}
	n.Advance(at)
	must(t, c.Turn()) // reads the clock
	must(t, c.Turn())
	if fired != time.Second {
		t.Errorf("fired at %v", fired)
	}
	must(t, p.Close())
	must(t, c.Turn())
}

// Who turns cores on a goroutine of its own hears of work, and ends the cores there.
func TestACoreThatEndsInATurnIsWokenForItsWorkAndItsEnd(t *testing.T) {
	woken := make(chan struct{}, 10)
	n := simnet.New(1, simnet.Options{Wake: func() { woken <- struct{}{} }})
	cfg := loop.Config{Cores: 1}
	var c *simnet.Core
	n.Host(netip.MustParseAddr("10.0.0.1")).Run(&cfg, func(core *simnet.Core) { c = core; c.EndInTurn() })
	p, err := loop.New(cfg)
	must(t, err)
	if c.Busy() {
		t.Fatal("a new core has something to do")
	}
	ran := false
	must(t, c.Do(func(*loop.Core) { ran = true }))
	<-woken
	for c.Busy() {
		must(t, c.Turn())
	}
	if !ran || len(woken) > 0 {
		t.Errorf("ran: %v, woken %d times more", ran, len(woken))
	}
	closed := make(chan struct{})
	go func() { defer close(closed); _ = p.Close() }()
	<-woken
	if c.Gone() || !c.Busy() {
		t.Error("it ended elsewhere")
	}
	must(t, c.Turn())
	<-closed
	if !c.Gone() || c.Busy() {
		t.Error("it has not ended")
	}
}

// What no driver has is closed by the plane of its host: nobody listens there any more,
// and who is connected hears of it.
func TestAPlaneClosesTheDescriptorsOfItsHost(t *testing.T) {
	w := newWorld(t, 12, simnet.Options{})
	cfg := loop.Config{Cores: 1}
	w.host[1].Run(&cfg, func(*simnet.Core) {})
	at := netip.AddrPortFrom(w.host[1].IP(), 4711)
	l, err := w.drv[1].Listen(at, uring.ListenOptions{})
	must(t, err)
	if n := w.host[1].Deaf(); n != 1 {
		t.Errorf("%d listeners accept nothing, want 1", n)
	}
	accept, err := w.drv[1].Arm(uring.KindAccept, l, userAccept)
	must(t, err)
	if n := w.host[1].Deaf(); n != 0 {
		t.Errorf("%d listeners accept nothing, want 0", n)
	}
	a, _, err := w.drv[0].Connect(netip.AddrPort{}, at, uring.SocketOptions{}, userConnect)
	must(t, err)
	w.run(time.Minute)
	taken, n := w.find(1, uring.KindAccept, userAccept)
	if n != 1 {
		t.Fatalf("%d connections", n)
	}
	cfg.CloseFD(int(taken.Res))
	w.run(time.Second)
	if _, errno, end := w.read(0, a); errno == unix.EAGAIN && !end {
		t.Error("the peer does not hear of the end")
	}

	w.drv[1].Cancel(accept)
	fd, err := w.drv[1].Detach(l)
	must(t, err)
	cfg.CloseFD(fd)
	cfg.CloseFD(fd) // nothing
	if n := w.host[1].Deaf(); n != 0 {
		t.Errorf("%d listeners are left", n)
	}
	if _, err := w.drv[1].Listen(at, uring.ListenOptions{}); err != nil {
		t.Errorf("the port of a listener that is closed: %v", err)
	}
}

// A core ends its direction of a simulated connection as it does in a kernel: the peer reads the end behind all that
// was sent, and what the peer sends is still read.
func TestACoreOfAHostEndsItsDirectionOfAConnection(t *testing.T) {
	w := newWorld(t, 13, simnet.Options{})
	cfg := loop.Config{Cores: 1}
	var c *simnet.Core
	w.host[0].Run(&cfg, func(core *simnet.Core) { c = core })
	p, err := loop.New(cfg)
	must(t, err)
	defer func() { must(t, p.Close()) }()
	l, err := w.drv[1].Listen(netip.AddrPortFrom(w.host[1].IP(), 4711), uring.ListenOptions{})
	must(t, err)
	_, err = w.drv[1].Arm(uring.KindAccept, l, userAccept)
	must(t, err)
	during := func(call func() error) error { // the two hosts go on meanwhile
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- call() }()
		for deadline := time.Now().Add(planetest.Patience); ; {
			for c.Busy() {
				must(t, c.Turn())
			}
			w.run(time.Second)
			select {
			case err := <-ended:
				return err
			default:
				if time.Now().After(deadline) {
					t.Fatal("the call does not end")
				}
			}
		}
	}
	var link *loop.Link
	must(t, during(func() (err error) {
		link, err = c.Dial(t.Context(), netip.AddrPort{}, w.drv[1].LocalAddr(l), uring.SocketOptions{})
		return err
	}))
	accepted, _ := w.find(1, uring.KindAccept, userAccept)
	b, err := w.drv[1].Adopt(int(accepted.Res))
	must(t, err)
	must(t, during(func() error { return link.Write(t.Context(), []byte("last")) }))
	must(t, during(func() error { link.HalfClose(); return nil }))
	if got, errno, end := w.read(1, b); string(got) != "last" || !end || errno != 0 {
		t.Errorf("the peer reads %q, %v, end=%v", got, errno, end)
	}
	w.write(1, b, []byte("answer"), userSend)
	got := make([]byte, 6)
	must(t, during(func() error { return link.ReadFull(t.Context(), got) }))
	if string(got) != "answer" {
		t.Errorf("behind our end came %q", got)
	}
	if err := during(func() error { return link.Write(t.Context(), []byte("more")) }); !errors.Is(err, unix.EPIPE) {
		t.Errorf("a write behind our end: %v", err)
	}
}
