package loop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// checkCores expects that a plane has the cores with these numbers.
func checkCores(t *testing.T, p *Plane, want ...int) {
	t.Helper()
	var got []int
	for _, c := range p.All() {
		if got = append(got, c.ID()); p.Core(c.ID()) != c {
			t.Errorf("core %d is %v", c.ID(), p.Core(c.ID()))
		}
	}
	if !slices.Equal(got, want) || p.Cores() != len(want) {
		t.Errorf("cores %v, %d in all, want %v", got, p.Cores(), want)
	}
}

func TestCoresComeAndGo(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores = 3
		round := func() {
			p := newPlane(t, cfg)
			ctx := deadline(t)
			must(t, p.RemoveCore(ctx, p.Core(1)))
			checkCores(t, p, 0, 2)
			if p.Core(1) != nil || p.Core(3) != nil || p.Core(-1) != nil {
				t.Error("a core that is not there is found")
			}
			for _, want := range []int{1, 3} {
				c, err := p.AddCore()
				must(t, err)
				if c.ID() != want || c.State() != CoreRunning {
					t.Errorf("added core %d, %v", c.ID(), c.State())
				}
				must(t, c.call(func(*Core) {}))
			}
			checkCores(t, p, 0, 1, 2, 3)
			for _, i := range []int{2, 0, 3} {
				must(t, p.RemoveCore(ctx, p.Core(i)))
			}
			checkCores(t, p, 1)
			if err := p.RemoveCore(ctx, p.Core(1)); !errors.Is(err, ErrLastCore) {
				t.Errorf("the last core: %v", err)
			}
			must(t, p.Core(1).call(func(*Core) {}))
			p.Close()
			if _, err := p.AddCore(); !errors.Is(err, ErrStopped) {
				t.Errorf("a core for a closed plane: %v", err)
			}
		}
		for range 5 { // the Go runtime maps memory for its first threads
			round()
		}
		drivertest.CheckLeaks(t, round)
	})
}

// A connection that arrives counts among the expected ones or in the load, and the core never takes itself for empty.
func TestACoreDoesNotMissAConnectionThatArrives(t *testing.T) {
	c := newBed(t, nil).c
	for range 1000 {
		c.Expect(1)
		go func() { c.AddLoad(1); c.Expect(-1) }()
		for c.expected.Load() > 0 {
			if c.left() {
				t.Fatal("it is empty")
			}
		}
		c.AddLoad(-1)
	}
}

// refusedRing is a driver that was opened in place of a ring.
type refusedRing struct{ uring.Driver }

func (r refusedRing) Info() uring.Info {
	info := r.Driver.Info()
	info.Fallback = "io_uring_setup: operation not permitted"
	return info
}

func TestTheLogSaysOnceWhyThereIsNoRing(t *testing.T) {
	lines := newLogLines()
	newPlane(t, Config{Cores: 3, Logger: slog.New(lines), Open: func(int) (uring.Driver, error) {
		d, err := uring.Open(uring.Config{Backend: uring.Epoll})
		return refusedRing{d}, err
	}})
	if got := lines.with("no ring"); len(got) != 1 || !strings.Contains(got[0], "operation not permitted") {
		t.Errorf("logged %q", got)
	}
}

// A stuck core cannot be removed, and does not hang who tries.
func TestAStuckCoreEndsWhenItIsNotStuckAnyMore(t *testing.T) {
	p := newPlane(t, Config{Cores: 2, StallAfter: -1, Driver: uring.Config{Backend: uring.Epoll}})
	gone := p.Core(0)
	netPair(t, gone) // it does not keep the core
	release := block(t, gone)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := p.RemoveCore(ctx, gone); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("removed: %v", err)
	}
	checkCores(t, p, 0, 1)
	release()
	<-gone.reaped
	checkCores(t, p, 1)
}

// Matrix: IO-04
func TestARemovedCoreWaitsForItsOffloadedWork(t *testing.T) {
	p := newPlane(t, Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	c, hold, gone := p.Core(0), make(chan struct{}), make(chan bool, 1)
	must(t, c.call(func(c *Core) { c.Offload(func() { <-hold }, func(c *Core) { gone <- c.Gone() }) }))
	must(t, p.Drain(c))
	if _, err := c.Dial(deadline(t), netip.AddrPort{}, drivertest.FullListener(t, t.Cleanup), uring.SocketOptions{}); !errors.Is(err, ErrStopped) {
		t.Errorf("it dials: %v", err)
	}
	if n := stats(t, c).Sockets; n != 0 {
		t.Errorf("it has %d sockets", n)
	}
	for range 3 {
		must(t, c.call(func(*Core) {}))
	}
	close(hold)
	if await(t, gone) {
		t.Error("the core has ended before")
	}
	must(t, p.AwaitDrained(deadline(t), c))
}

// knocking connects to addr again and again until the test calls stop; every connection
// must be answered. served counts them.
func knocking(t *testing.T, addr string) (served *atomic.Int64, stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	served = new(atomic.Int64)
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			default:
			}
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Errorf("connect %d: %v", n, err)
				return
			}
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Errorf("connection %d is not served: %v", n, err)
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
			served.Add(1)
		}
	}()
	return served, func() { close(end); <-ended }
}

// greet answers a connection and closes it.
func greet(t *testing.T) func(*Link) {
	return func(l *Link) {
		go func() {
			if err := l.Write(deadline(t), []byte("hello")); err != nil && !errors.Is(err, ErrStopped) {
				_ = l.ReadFull(deadline(t), make([]byte, 1))
			}
			_ = l.ReadFull(deadline(t), make([]byte, 1)) // its end
			l.Close()
		}()
	}
}

// Matrix: IO-04
func TestAListenerChangesCoresAndRefusesNobody(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *Plane) {
		l, err := p.Core(0).Listen(loopback, uring.ListenOptions{}, greet(t))
		must(t, err)
		served, stop := knocking(t, l.Addr().String())
		for i := 0; i < 60 || served.Load() < 10 && !t.Failed(); i++ {
			must(t, l.Move(p.Core(1)))
			must(t, l.Move(l.Core())) // nothing to do
			must(t, l.Move(p.Core(0)))
		}
		stop()
		if l.Core() != p.Core(0) {
			t.Errorf("at core %d", l.Core().ID())
		}
		must(t, l.Pause())
		must(t, l.Move(p.Core(1)))
		if stats(t, p.Core(1)); !l.paused {
			t.Error("a paused listener accepts behind a move")
		}
		must(t, l.Close())
		if err := l.Move(p.Core(0)); !errors.Is(err, ErrLinkClosed) {
			t.Errorf("moved when closed: %v", err)
		}
		must(t, p.RemoveCore(deadline(t), p.Core(0)))
	})
}

// The listeners of a core that fails are another one's at once.
func TestTheListenersOfAFailedCoreGoOn(t *testing.T) {
	var broken atomic.Bool
	told := make(chan int, 1)
	const cause = unix.ENXIO
	p := newPlane(t, Config{
		Cores:  2,
		Failed: func(c *Core, _ error) { told <- c.ID() },
		Open: func(core int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{Backend: uring.Epoll})
			if core == 0 && err == nil {
				d = faulty.New(d, func(r faulty.Request) (f faulty.Fault) {
					if r == faulty.Wait && broken.Load() {
						f.Errno = cause
					}
					return f
				})
			}
			return d, err
		},
	})
	failed := p.Core(0)
	l, err := failed.Listen(loopback, uring.ListenOptions{}, greet(t))
	must(t, err)
	broken.Store(true)
	_ = failed.Do(func(*Core) {})
	<-failed.done
	if id := <-told; id != 0 {
		t.Errorf("core %d is said to have failed", id)
	}
	_, stop := knocking(t, l.Addr().String())
	for range 20 {
		must(t, l.call(func(*Core) error { return nil }))
	}
	if stop(); l.Core() != p.Core(1) || failed.State() != CoreFailed {
		t.Errorf("at core %d, state %v", l.Core().ID(), failed.State())
	}
	if st, err := failed.Stats(); err != nil || st.State != "failed" || !strings.Contains(st.Failed, cause.Error()) || st.Stalled {
		t.Errorf("%+v, %v", st, err)
	}
	if failed.Healthy() || !p.Core(1).Healthy() {
		t.Errorf("healthy: the failed core %v, the other one %v", failed.Healthy(), p.Core(1).Healthy())
	}
	// It is gone at once; who drained it and looks only then is not too late.
	must(t, p.Drain(failed))
	<-failed.reaped
	must(t, p.AwaitDrained(deadline(t), failed))
	if err := p.RemoveCore(deadline(t), failed); !errors.Is(err, ErrNoCore) {
		t.Errorf("removed twice: %v", err)
	}
	checkCores(t, p, 1)
	must(t, l.Close())
}

// A listener that is on its way to a core as that ends, or comes to one that is gone, is another
// one's at once.
func TestAListenerOnItsWayToACoreThatEndsGoesOn(t *testing.T) {
	for _, gone := range []bool{false, true} {
		p := newPlane(t, Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}})
		from, to := p.Core(0), p.Core(1)
		l, err := from.Listen(loopback, uring.ListenOptions{}, greet(t))
		must(t, err)
		hold := make(chan struct{})
		must(t, to.Do(func(*Core) { <-hold; runtime.Goexit() }))
		if gone {
			close(hold)
			<-to.done
		}
		moved := make(chan error)
		go func() { moved <- l.Move(to) }()
		if !gone {
			for to.box.empty() {
				runtime.Gosched()
			}
			must(t, p.Drain(from)) // it goes to core 2
			close(hold)
		}
		if err := await(t, moved); !errors.Is(err, ErrStopped) {
			t.Errorf("moved to a core that ends: %v", err)
		}
		served, stop := knocking(t, l.Addr().String())
		for served.Load() < 3 && !t.Failed() {
			must(t, l.withSocket(func(*Core) error { return nil }))
		}
		if stop(); l.Core().State() != CoreRunning {
			t.Errorf("at core %d, %v", l.Core().ID(), l.Core().State())
		}
		must(t, l.Close())
	}
}

// Nor does the log call it lost.
func TestAListenerThatTwoCoresLoseIsNotCalledLost(t *testing.T) {
	lines := newLogLines()
	p := newPlane(t, Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}, Logger: slog.New(lines)})
	l, err := p.Core(0).Listen(loopback, uring.ListenOptions{}, greet(t))
	must(t, err)
	hold := make(chan struct{})
	must(t, p.Core(1).Do(func(*Core) { <-hold; runtime.Goexit() }))
	must(t, p.Core(0).Do(func(*Core) { runtime.Goexit() }))
	<-p.Core(0).done
	close(hold)
	must(t, l.Close())
	<-p.Core(1).done
	if got := lines.with("lost"); len(got) > 0 || l.Core() != p.Core(2) {
		t.Errorf("logged %q, at core %d", got, l.Core().ID())
	}
}

// A callback that ends the core's goroutine makes it fail, not vanish.
// Matrix: XC-16
func TestACoreWhoseGoroutineIsEndedHasFailed(t *testing.T) {
	lines := newLogLines()
	p := newPlane(t, Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}, Logger: slog.New(lines)})
	must(t, p.Core(0).Do(func(*Core) { runtime.Goexit() }))
	if err := await(t, p.Failures()); !errors.Is(err, errExited) {
		t.Errorf("reported %v", err)
	}
	<-p.Core(0).done
	if st := p.Core(0).State(); st != CoreFailed || len(lines.with("core failed")) != 1 || !p.Core(0).Gone() {
		t.Errorf("state %v, logged %q, gone %v", st, lines.with("core"), p.Core(0).Gone())
	}
}

func TestProfilesTellTheCoresApart(t *testing.T) {
	p := newPlane(t, Config{Cores: 3, Name: "osd.7", Pin: true})
	var text bytes.Buffer
	var cpus []int
	must(t, p.Core(2).call(func(*Core) { cpus, _ = uring.AllowedCPUs() }))
	if len(cpus) != 1 {
		t.Errorf("a pinned core may use the CPUs %v", cpus)
	}
	done := make(chan error)
	must(t, p.Core(1).Do(func(*Core) { done <- pprof.Lookup("goroutine").WriteTo(&text, 1) }))
	must(t, <-done)
	for _, want := range []string{`"core":"0", "messenger":"osd.7"`, `"core":"1", "messenger":"osd.7"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no goroutine has the labels %s in\n%s", want, &text)
		}
	}
}

func TestConfigReportsEveryProblemAtOnce(t *testing.T) {
	bad := Config{Cores: -1, Spin: time.Hour, Receive: "sometimes", PoolKeep: -1}
	err := bad.Validate()
	if !errors.Is(err, errConfig) {
		t.Fatal(err)
	}
	for _, part := range []string{"cores", "spin", "receive", "negative"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if _, err := New(bad); !errors.Is(err, errConfig) {
		t.Errorf("New: %v", err)
	}
	var zero Config
	must(t, zero.Validate())
}

func TestACoreThatCannotOpenIsNamed(t *testing.T) {
	refused := errors.New("no ring for you")
	open := func(core int) (uring.Driver, error) {
		if core == 2 {
			return nil, refused
		}
		return uring.Open(uring.Config{Backend: uring.Epoll})
	}
	started := func(c *Core) error {
		if c.ID() == 2 {
			return refused
		}
		return nil
	}
	for i, cfg := range []Config{{Open: open}, {Started: started, Driver: uring.Config{Backend: uring.Epoll}}} {
		for _, cfg.Stepped = range []func(*Core, stepped.Stepper){nil, func(*Core, stepped.Stepper) {}} {
			drivertest.CheckLeaks(t, func() {
				cfg.Cores = 3
				if _, err := New(cfg); !errors.Is(err, refused) || !strings.Contains(err.Error(), "core 2") {
					t.Errorf("%d, stepped=%v: %v", i, cfg.Stepped != nil, err)
				}
			})
		}
	}
	exits := func(*Core) error { runtime.Goexit(); return nil }
	drivertest.CheckLeaks(t, func() {
		if _, err := New(Config{Cores: 1, Started: exits, Driver: uring.Config{Backend: uring.Epoll}}); !errors.Is(err, errExited) || !strings.Contains(err.Error(), "core 0") {
			t.Errorf("started in vain: %v", err)
		}
	})
	p := newPlane(t, Config{Cores: 2, Open: open})
	if _, err := p.AddCore(); !errors.Is(err, refused) || !strings.Contains(err.Error(), "core 2") {
		t.Errorf("added: %v", err)
	}
	checkCores(t, p, 0, 1)
}

// borrowed is a buffer that is lent to another goroutine.
type borrowed struct {
	loan Loan
	buf  *Buffer
}

func (b *borrowed) Returned(c *Core) { c.TakeBack(b.buf) }

// What is given back while its core closes comes back to it all the same.
// Matrix: XC-12
func TestAReleaseRacingWithCloseLosesNoMemory(t *testing.T) {
	for round := range 300 {
		var mapped []*uring.Memory
		p := newPlane(t, Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}, Map: func(size int) (*uring.Memory, error) {
			m, err := uring.Map(size)
			mapped = append(mapped, m)
			return m, err
		}})
		c := p.Core(0)
		lent := make(chan *borrowed)
		must(t, c.Do(func(c *Core) {
			large, _ := c.Lend(1 << 20)
			c.TakeBack(large)
			b := &borrowed{}
			b.loan.Of = b
			b.buf, _ = c.Lend(100)
			lent <- b
		}))
		b := <-lent
		back, sent, released := 0, 0, make(chan struct{})
		counted := regained(func(*Core) { back++ })
		go func() {
			for ; !c.Gone(); sent++ { // one of them comes in the very moment
				c.Return(&Loan{Of: counted})
			}
			c.Return(&b.loan)
			close(released)
		}()
		p.Close()
		<-released
		c.afterEnd.Lock()
		left := c.pool.inUse
		chunks := len(c.pool.chunks)
		c.afterEnd.Unlock()
		if left != 0 || chunks != 0 || back != sent {
			t.Fatalf("round %d: %d bytes, %d chunks are lost, %d of %d loans", round, left, chunks, sent-back, sent)
		}
		if len(mapped) != 3 || slices.ContainsFunc(mapped, func(m *uring.Memory) bool { return m.Bytes() != nil }) {
			t.Fatalf("round %d: of %d pieces of memory some stay mapped", round, len(mapped))
		}
	}
}

// Matrix: XC-12
func TestWorkForAStoppedCoreIsRefused(t *testing.T) {
	last := make(chan struct{})
	p := newPlane(t, Config{
		Cores: 1, Driver: uring.Config{Backend: uring.Epoll},
		Ended: func(c *Core) { c.Post(&Task{Run: func(*Core) { close(last) }}) }, // behind the last look at the mailbox
	})
	p.Close()
	await(t, last)
	if err := p.Core(0).Do(func(*Core) { t.Error("it ran") }); !errors.Is(err, ErrStopped) {
		t.Errorf("%v", err)
	}
	if _, err := p.Core(0).Stats(); !errors.Is(err, ErrStopped) {
		t.Errorf("%v", err)
	}
	p.Core(0).post(&Task{Run: func(*Core) { t.Error("what came as it ended ran") }, of: &notLate})
	ran := make(chan struct{})
	p.Core(0).Post(&Task{Run: func(*Core) { close(ran) }})
	<-ran
}

func TestAStrayAcceptIsClosed(t *testing.T) {
	b := newBed(t, nil)
	f := b.d.Open()
	b.d.Queue = append(b.d.Queue, uring.Completion{Kind: uring.KindAccept, User: 77<<32 | 5, Res: int32(f.Sock.FD()), Flags: uring.More})
	b.settle()
	if f.CloseCalls != 1 || b.c.stats.Stray != 1 {
		t.Errorf("closed %d times, %d stray", f.CloseCalls, b.c.stats.Stray)
	}
}

func TestListenerMovesToAnotherPlaneWithItsQueue(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores = 1
		old, next := newPlane(t, cfg), newPlane(t, cfg)
		first, second := make(chan *Link, 10), make(chan *Link, 10)
		l, err := old.Core(0).Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{}, func(l *Link) { first <- l })
		must(t, err)
		var successor *Listener
		for try := range 2 {
			if try > 0 {
				must(t, successor.Close()) // it has not accepted, and its socket comes again under its number
			}
			fd, err := l.Descriptor()
			must(t, err)
			high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 900)
			must(t, errors.Join(err, unix.Close(fd)))
			successor, err = next.Core(0).AdoptListener(high, func(l *Link) { second <- l })
			must(t, err)
		}
		if successor.Addr() != l.Addr() {
			t.Errorf("adopted %v, want %v", successor.Addr(), l.Addr())
		}
		dial := func() net.Conn {
			c, err := net.Dial("tcp", l.Addr().String())
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		take := func(from chan *Link) { t.Helper(); await(t, from).Close() }
		dial()
		take(first)
		for range 3 {
			must(t, l.Pause())
			c := dial()
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || len(first)+len(second) != 0 {
				t.Errorf("a paused listener: %v, accepted %d and %d", err, len(first), len(second))
			}
			must(t, l.Resume())
			take(first)
		}
		must(t, l.Pause())
		dial() // waits in the queue
		must(t, l.Close())
		must(t, successor.Resume())
		take(second)
		dial()
		take(second)
		if err := l.Share(); !errors.Is(err, ErrLinkClosed) {
			t.Errorf("Share of a closed listener: %v", err)
		}
		if _, err := l.Descriptor(); !errors.Is(err, ErrLinkClosed) {
			t.Errorf("Descriptor of a closed listener: %v", err)
		}
		if len(first) != 0 {
			t.Error("the old listener accepted behind its end")
		}
	})
}

func TestAdoptListenerRefusesWhatDoesNotListen(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		for name, family := range map[string][2]int{
			"datagram": {unix.AF_INET, unix.SOCK_DGRAM}, "not listening": {unix.AF_INET, unix.SOCK_STREAM}, "unix": {unix.AF_UNIX, unix.SOCK_STREAM},
		} {
			fd, err := unix.Socket(family[0], family[1]|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			var before, after unix.Stat_t
			must(t, unix.Fstat(fd, &before))
			if _, err := p.Core(0).AdoptListener(fd, nil); !errors.Is(err, errNotListening) {
				t.Errorf("%s: %v", name, err)
			}
			if err := unix.Fstat(fd, &after); err == nil && after.Ino == before.Ino { // others may have its number
				t.Errorf("%s: the descriptor is still open", name)
			}
		}
		if _, err := p.Core(0).AdoptListener(-1, nil); !errors.Is(err, errNotListening) {
			t.Errorf("no descriptor: %v", err)
		}
	})
}
