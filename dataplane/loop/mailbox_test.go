package loop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Matrix: XC-08, IO-10
func TestMailboxKeepsTheOrderOfEachProducer(t *testing.T) {
	const producers, each = 8, 2000
	var box mailbox
	type entry struct{ producer, n int }
	var got []entry
	var running sync.WaitGroup
	for p := range producers {
		running.Go(func() {
			for n := range each {
				box.push(&Task{Run: func(*Core) { got = append(got, entry{p, n}) }})
			}
		})
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		for tk := box.take(); tk != nil; tk = tk.next {
			tk.Run(nil)
		}
	}
	if !box.empty() || len(got) != producers*each {
		t.Fatalf("%d tasks came out of %d", len(got), producers*each)
	}
	next := make([]int, producers)
	for i, e := range got {
		if e.n != next[e.producer] {
			t.Fatalf("task %d: producer %d's number %d, want %d", i, e.producer, e.n, next[e.producer])
		}
		next[e.producer]++
	}
}

// Matrix: XC-09, IO-11
func TestAWakeUpIsNeverLost(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *Plane) {
		const rounds = 2000 // to each of two cores
		ran := make(chan struct{}, 1)
		timeout := time.NewTimer(patience)
		for i := range rounds {
			for c := range 2 {
				timeout.Reset(patience)
				must(t, p.Core(c).Do(func(*Core) { ran <- struct{}{} }))
				select {
				case <-ran:
				case <-timeout.C:
					t.Fatalf("round %d: core %d sleeps over a task", i, c)
				}
			}
		}
	})
}

// postsInWait is a driver during whose call that does not wait another goroutine posts a task.
type postsInWait struct {
	uring.Driver
	post func()
}

func (d *postsInWait) Wait(timeout time.Duration) ([]uring.Completion, error) {
	if post := d.post; post != nil && timeout == 0 {
		d.post = nil
		post()
	}
	return d.Driver.Wait(timeout)
}

// regained is called when it is back.
type regained func(*Core)

func (r regained) Returned(c *Core) { r(c) }

// A task that comes just before the core sleeps, or while it spins, wakes nobody, nor does memory for
// which reads wait: so the core looks itself.
func TestACoreLooksAgainBeforeItSleeps(t *testing.T) {
	for _, spin := range []time.Duration{0, 10 * time.Millisecond} {
		d := &postsInWait{}
		p := newPlane(t, Config{Cores: 1, Spin: spin, Open: func(int) (_ uring.Driver, err error) {
			d.Driver, err = uring.Open(uring.Config{Backend: uring.Epoll})
			return d, err
		}})
		for _, post := range []func(c *Core, seen func(*Core)){
			func(c *Core, seen func(*Core)) { c.Post(&Task{Run: seen}) },
			func(c *Core, seen func(*Core)) { c.Return(&Loan{Of: regained(seen)}) },
		} {
			missed := make(chan uint64, 1)
			must(t, p.Core(0).Do(func(c *Core) {
				c.owed = spin == 0 // it makes such a call before it sleeps
				c.short.Store(true)
				misses := c.stats.SpinMisses
				d.post = func() { post(c, func(c *Core) { missed <- c.stats.SpinMisses - misses }) }
			}))
			if n := await(t, missed); n > 0 {
				t.Errorf("spin %v: seen when it was over", spin)
			}
		}
	}
}

// A task for an object runs where the object is by then.
// Matrix: XC-08
func TestATaskFollowsItsOwner(t *testing.T) {
	p := newPlane(t, Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	var o Owner
	o.Store(p.Core(0))
	ran := make(chan *Core, 1)
	must(t, p.Core(0).call(func(*Core) {
		o.Post(&Task{Run: func(c *Core) { ran <- c }})
		o.Store(p.Core(1))
	}))
	if c := await(t, ran); c != p.Core(1) {
		t.Errorf("it ran on core %d", c.ID())
	}
}

// onCore runs f on the core and fails the test if it waits there.
func onCore(t *testing.T, c *Core, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	must(t, c.Do(func(*Core) { f(); close(done) }))
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s waits on a core", what)
	}
}

func TestCallsThatWaitForACoreFailAtOnceOnOne(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *Plane) {
		here := p.Core(0)
		ctx := deadline(t)
		for _, c := range p.All() { // its own, and another
			link, peer := linkPair(t, c, p.Core(1))
			l, err := c.Listen(loopback, uring.ListenOptions{}, func(*Link) {})
			must(t, err)
			for what, call := range map[string]func() error{
				"Core.Stats":       func() error { _, err := c.Stats(); return err },
				"Ask":              func() error { _, err := Ask(c, func(*Core) int { return 0 }); return err },
				"Core.call":        func() error { return c.call(func(*Core) {}) },
				"Core.Dial":        func() error { _, err := c.Dial(ctx, netip.AddrPort{}, l.Addr(), uring.SocketOptions{}); return err },
				"Core.Listen":      func() error { _, err := c.Listen(loopback, uring.ListenOptions{}, nil); return err },
				"AdoptListener":    func() error { return adoptAgain(c, l) },
				"Listener.Pause":   l.Pause,
				"Listener.Resume":  l.Resume,
				"Listener.Share":   l.Share,
				"Listener.Move":    func() error { return l.Move(p.Core(1 - c.ID())) },
				"Listener.Close":   l.Close,
				"Descriptor":       func() error { _, err := l.Descriptor(); return err },
				"Link.ReadFull":    func() error { return link.ReadFull(ctx, make([]byte, 1)) },
				"Link.Write":       func() error { return link.Write(ctx, []byte("x")) },
				"Plane.AddCore":    func() error { _, err := p.AddCore(); return err },
				"Plane.RemoveCore": func() error { return p.RemoveCore(ctx, c) },
				"AwaitDrained":     func() error { return p.AwaitDrained(ctx, c) },
				"Plane.Close":      p.Close,
			} {
				var err error
				onCore(t, here, what, func() { err = call() })
				if !errors.Is(err, ErrOnCore) {
					t.Errorf("%s for core %d: %v", what, c.ID(), err)
				}
			}
			// Nothing was done: all of it goes on.
			must(t, link.Write(ctx, []byte("x")))
			must(t, peer.ReadFull(ctx, make([]byte, 1)))
			must(t, l.Close())
			if p.Cores() != 2 || c.State() != CoreRunning {
				t.Errorf("%d cores, core %d is %v", p.Cores(), c.ID(), c.State())
			}
		}
	})
}

// adoptAgain has c adopt the socket of l. Its descriptor is closed on an error.
func adoptAgain(c *Core, l *Listener) error {
	fd, err := unix.Dup(l.FD())
	if err != nil {
		return err
	}
	_, err = c.AdoptListener(fd, func(*Link) {})
	return err
}

func TestALinkIsClosedOnACoreWithoutWaiting(t *testing.T) {
	p := newPlane(t, Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	for _, c := range p.All() {
		for name, end := range map[string]func(*Link){"Close": (*Link).Close, "Reset": (*Link).Reset, "HalfClose": (*Link).HalfClose} {
			link, peer := linkPair(t, c, p.Core(1))
			onCore(t, p.Core(0), name, func() { end(link) })
			if err := peer.ReadFull(deadline(t), make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s on core 0 of a link of core %d: the peer reads %v", name, c.ID(), err)
			}
		}
	}
}

// Matrix: XC-03, IO-10
func TestACallOfTheCoreFromElsewherePanicsInInvariantBuilds(t *testing.T) {
	p := newPlane(t, Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}})
	c := p.Core(0)
	link, _ := linkPair(t, c, c)
	var s *Socket
	must(t, c.call(func(*Core) { s = link.Socket() }))
	var shared Local[int]
	for what, call := range map[string]func(){
		"Core.Now": func() { c.Now() }, "Core.Counts": func() { c.Counts() }, "Core.Arm": func() { c.Arm(new(Timer), 0) }, "Core.Stop": func() { c.Stop(new(Timer)) },
		"Core.TakeBack": func() { c.TakeBack(nil) }, "Core.Lend": func() { _, _ = c.Lend(1) }, "Core.Snapshot": func() { c.Snapshot() }, "Core.Attach": func() { _, _ = c.Attach(nil, nil) },
		"Core.Adopt": func() { _, _ = c.Adopt(-1) }, "Core.turn": func() { _ = c.turn(false) },
		"Local.Of": func() { shared.Of(c) }, "Link.Socket": func() { link.Socket() }, "Link.Carry": func() { _ = link.Carry(nil) },
		"Mark": s.Mark, "Fault": func() { s.Fault(nil) }, "Close": func() { s.Close(nil) }, "Pause": func() { s.Pause(nil, nil, 0, false) }, "Hold": s.Hold, "Release": s.Release,
		"Reading": func() { s.Reading() }, "Writing": func() { s.Writing() }, "Touched": func() { s.Touched() }, "Behind": func() { s.Behind() },
		"HungUp": func() { s.HungUp() }, "Backlog": func() { s.Backlog() }, "Stopped": func() { s.Stopped() }, "Throttled": func() { s.Throttled() }, "StoppedSince": func() { s.StoppedSince() },
		"Begin": s.Begin, "Took": func() { s.Took() }, "Passed": s.Passed, "Leaving": func() { s.Leaving() }, "Detach": func() { s.Detach(nil) }, "Continue": s.Continue,
		"EndWriting": s.EndWriting, "ReadInPlace": s.ReadInPlace,
	} {
		if !invariants.Enabled {
			break // most of these calls would do harm
		}
		if got := panicOf(call); !strings.Contains(got, "owner-only") {
			t.Errorf("%s: %s", what, got)
		}
	}
	if c.Current() || p.OnCore() || p.onCore(c.tid.Load()) { // also after it has left a thread that is the core's now
		t.Error("the test is said to run on a core")
	}
}

func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return ""
}
