package uring_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// inFlight starts one operation of each kind that cannot end by itself.
func (r *rig) inFlight() map[string]flight {
	r.t.Helper()
	flights := map[string]flight{}
	l := r.listen(loopback, uring.ListenOptions{})
	user, op := r.accept(l)
	flights["accept"] = flight{l, user, op}
	s, _ := r.plain()
	user, op = r.ready(s)
	flights["ready"] = flight{s, user, op}
	if r.d.Info().Receive {
		s, _ = r.plain()
		user, op = r.receive(s)
		flights["receive"] = flight{s, user, op}
	}
	s, _, user, op = r.clogged()
	flights["send"] = flight{s, user, op}
	s, user, op = r.connect(netip.AddrPort{}, drivertest.FullListener(r.t, r.cleanup), uring.SocketOptions{})
	flights["connect"] = flight{s, user, op}
	r.settle()
	return flights
}

type flight struct {
	s    uring.Socket
	user uint64
	op   uring.Op
}

// Matrix: IO-02, IO-07
func TestCancelAndCloseEndEachKindOnce(t *testing.T) {
	for _, closed := range []bool{false, true} {
		overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
			flights := r.inFlight()
			for kind, f := range flights {
				if cs := r.collected[f.user]; len(cs) > 0 {
					t.Fatalf("%s: completed too early: %+v", kind, cs[0])
				}
				if closed {
					r.d.Close(f.s)
				} else {
					r.d.Cancel(f.op)
				}
			}
			for kind, f := range flights {
				c := r.awaitFinal(f.user)
				if c.Errno() != unix.ECANCELED && (kind != "send" || c.Res < 0) && (!closed || c.Res >= 0) {
					t.Fatalf("%s, closed %v: final completion %+v (%v), want ECANCELED", kind, closed, c, c.Errno())
				}
				r.d.Cancel(f.op) // it has ended
				r.d.Cancel(0)
				r.expectNone(f.user)
			}
		})
	}
}

// The peer of a close reads the end of the stream, that of a reset ECONNRESET.
// Matrix: SH-14
func TestCloseAndResetEndTheStreamOfThePeer(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		for want, end := range map[unix.Errno]func(uring.Socket){0: r.d.Close, unix.ECONNRESET: r.d.Reset} {
			a, b := r.pair(uring.SocketOptions{})
			ready, _ := r.ready(b)
			armed, _ := r.ready(a) // an operation in flight must not keep it open
			end(a)
			end(a) // it is closed
			r.expectFinal(armed, unix.ECANCELED)
			n, errno := 0, unix.EAGAIN
			for errno == unix.EAGAIN {
				r.await(ready)
				n, errno = r.d.Recv(b, make([]byte, 1), nil)
			}
			if n != 0 || errno != want {
				t.Errorf("the peer reads %d bytes, %v, want %v", n, errno, want)
			}
		}
	})
}

// What was sent before arrives, then the end. The other direction goes on. A send in flight, or a later one, fails.
// Matrix: SH-14
func TestEndWritingEndsOneDirection(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		a, b := r.pair(uring.SocketOptions{})
		r.sendAll(a, r.vec([]byte("last words")))
		r.d.EndWriting(a)
		ready, _ := r.ready(b)
		var got []byte
		for ended := false; !ended; {
			r.await(ready)
			var p []byte
			p, ended = r.drain(b)
			got = append(got, p...)
		}
		if string(got) != "last words" {
			t.Errorf("before the end came %q", got)
		}
		answer, _ := r.ready(a)
		r.sendAll(b, r.vec([]byte("x")))
		expectReadable(t, r.await(answer))
		if p, ended := r.drain(a); string(p) != "x" || ended {
			t.Errorf("the other direction brings %q, ended: %v", p, ended)
		}
		done, later, _ := r.send(a, r.vec([]byte("x")), 0)
		if done {
			t.Fatal("sent behind the end")
		}
		r.expectFinal(later, unix.EPIPE)
		clogged, _, user, _ := r.clogged()
		r.d.EndWriting(clogged)
		r.expectFinal(user, unix.EPIPE, unix.ECONNRESET, unix.ECANCELED)
	})
}

// Matrix: IO-07, INV-07
func TestCloseDriverReleasesEverything(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			open := func() {
				r := newRig(t, uring.Config{Backend: backend})
				defer r.finish()
				flights := r.inFlight()
				s, _ := r.plain()
				accept := flights["accept"]
				dial := func() {
					c, err := net.Dial("tcp", r.d.LocalAddr(accept.s).String())
					must(t, err)
					r.cleanup(func() { c.Close() })
				}
				dial()
				given := r.await(accept.user) // by the last Wait
				for range 3 {                 // no Wait gives these
					dial()
				}
				r.ready(s)
				r.d.EndWriting(s) // lets the kernel accept
				r.ready(s)        // never submitted
				r.closeDriver()
				if err := unix.Close(int(given.Res)); err != nil {
					t.Errorf("a connection that the test has: %v", err)
				}
			}
			open() // what the runtime opens once is open now
			before := drivertest.Descriptors(t)
			for range 3 {
				open()
			}
			if after := drivertest.Descriptors(t); after != before {
				t.Fatalf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func TestClosedDriverIsHarmless(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		_, op := r.ready(s)
		r.closeDriver()
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the peer reads %v", err)
		}
		_, wait := r.d.Wait(0)
		_, arm := r.d.Arm(uring.KindReady, s, 1)
		_, _, send := r.d.Send(s, r.vec([]byte("x")), 1, 0)
		_, listen := r.d.Listen(loopback, uring.ListenOptions{})
		_, _, connect := r.d.Connect(netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:1"), uring.SocketOptions{}, 1)
		_, adopt := r.d.Adopt(s.FD())
		for i, err := range []error{wait, arm, send, listen, connect, adopt} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("call %d after CloseDriver: %v", i, err)
			}
		}
		r.d.Cancel(op)
		r.d.Close(s)
		r.d.Wake()
		if err := r.d.CloseDriver(); err != nil {
			t.Errorf("second CloseDriver: %v", err)
		}
		if n := r.d.Stats().InFlight; n != 0 {
			t.Errorf("%d operations in flight after CloseDriver", n)
		}
	})
}

func TestADetachedSocketGoesOnWhereItIsAdopted(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		a, b := r.pair(uring.SocketOptions{})
		user, op := r.ready(a)
		if _, err := r.d.Detach(a); !errors.Is(err, unix.EBUSY) {
			t.Fatalf("detached with an operation in flight: %v", err)
		}
		r.d.Cancel(op)
		r.expectFinal(user, unix.ECANCELED)
		r.sendAll(b, r.vec([]byte("before")))
		fd, err := r.d.Detach(a)
		if err != nil || fd != a.FD() {
			t.Fatalf("descriptor %d, %v, want %d", fd, err, a.FD())
		}
		if _, errno := r.d.Recv(a, make([]byte, 1), nil); errno != unix.EBADF {
			t.Errorf("read from a socket that has left: %v", errno)
		}
		if _, err := r.d.Detach(a); !errors.Is(err, unix.EBADF) {
			t.Errorf("detached twice: %v", err)
		}
		r.d.Close(a) // does nothing: the descriptor is not the driver's

		again, err := r.d.Adopt(fd)
		must(t, err)
		user, _ = r.ready(again)
		expectReadable(t, r.await(user))
		if data, ended := r.drain(again); string(data) != "before" || ended {
			t.Fatalf("read %q, end %v", data, ended)
		}
		r.sendAll(b, r.vec([]byte("behind")))
		expectReadable(t, r.await(user))
		if data, ended := r.drain(again); string(data) != "behind" || ended {
			t.Fatalf("read %q, end %v", data, ended)
		}
		r.sendAll(again, r.vec([]byte("back")))
	})
}

// Events that nobody asked for do not end a Wait.
func TestWaitReturnsNotBeforeACompletionOrItsTimeout(t *testing.T) {
	for _, cfg := range []uring.Config{{}, uring.Without(uring.Config{}, uring.FeaturePwait2)} {
		overDrivers(t, cfg, func(t *testing.T, r *rig) {
			s, conn := r.plain()
			write(t, conn, []byte("nobody asked"))
			r.settle()
			submitted := r.d.Stats().Submitted
			for _, timeout := range []time.Duration{0, 5 * time.Millisecond, 300 * time.Microsecond, 3 * time.Millisecond, 30 * time.Millisecond} {
				start := time.Now()
				if n := r.step(timeout); n != 0 {
					t.Fatalf("%d completions", n)
				}
				if took := time.Since(start); took < timeout {
					t.Fatalf("Wait(%v) returned after %v", timeout, took)
				}
			}
			if n := r.d.Stats().InFlight; n != 1 { // the accept
				t.Fatalf("%d operations in flight, want 1", n)
			}
			time.AfterFunc(10*time.Millisecond, r.d.Wake)
			r.step(-1)
			if st := r.d.Stats(); st.Enters > 20 || st.Submitted != submitted {
				t.Errorf("%d system calls for 6 waits, with %d requests", st.Enters, st.Submitted-submitted)
			}
			r.d.Close(s)
		})
	}
}

func TestWakeBeforeWait(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		for range 100 {
			r.d.Wake()
			if n := r.step(-1); n != 0 {
				t.Fatalf("%d completions from a wake-up", n)
			}
		}
		if r.d.Stats().Wakes == 0 {
			t.Fatal("wake-ups are not counted")
		}
		// Any number of them ends one Wait at least, and they do not add up to
		// a loop that never sleeps again.
		for range 10 {
			r.d.Wake()
		}
		r.step(-1)
		r.settle()
		start := time.Now()
		r.step(2 * time.Millisecond)
		if took := time.Since(start); took < 2*time.Millisecond {
			t.Fatalf("still awake: Wait returned after %v", took)
		}
	})
}

// Every fourth round waits until the loop has seen it: a lost wake-up stops both.
// Matrix: XC-09, IO-11, IO-10
func TestWakeIsNeverLost(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		const rounds = 10_000
		var posted atomic.Int64
		seen := make(chan int64, 1)
		go func() {
			for i := int64(1); i <= rounds; i++ {
				posted.Store(i)
				r.d.Wake()
				if i%4 != 0 {
					continue // overtake the loop now and then
				}
				for <-seen < i {
				}
			}
		}()
		for last := int64(0); last < rounds; {
			now := posted.Load()
			if now == last {
				start := time.Now()
				r.step(patience)
				if time.Since(start) >= patience {
					t.Fatalf("round %d: the wake-up was lost", last+1)
				}
				continue
			}
			last = now
			select {
			case <-seen: // not taken yet: replace it
			default:
			}
			seen <- last
		}
	})
}

func TestWakeDuringCloseDriver(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		var stop atomic.Bool
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for !stop.Load() {
					r.d.Wake()
				}
			})
		}
		r.step(-1)
		r.closeDriver()
		stop.Store(true)
		wg.Wait()
	})
}

// Whatever takes over the numbers of a closed driver stays untouched.
func TestWakeAfterCloseDriverTouchesNoOtherFile(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		r.d.Wake()
		r.step(-1)
		r.settle()
		n := drivertest.Descriptors(t)
		r.closeDriver()
		var events []int
		for range n {
			fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
			must(t, err)
			events = append(events, fd)
		}
		r.d.Wake()
		r.d.Wake()
		for _, fd := range events {
			if _, err := unix.Read(fd, make([]byte, 8)); err != unix.EAGAIN {
				t.Errorf("a wake-up wrote to descriptor %d of somebody else (%v)", fd, err)
			}
			unix.Close(fd)
		}
	})
}

// Matrix: OB-03
func TestStatsCount(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		delivered := uint64(0)
		count := func(timeout time.Duration) { delivered += uint64(r.step(timeout)) }
		start := r.d.Stats()
		l := r.listen(loopback, uring.ListenOptions{})
		_, accept := r.accept(l)
		a, _, _ := r.connect(loopback, r.d.LocalAddr(l), uring.SocketOptions{})
		for delivered < 2 {
			count(patience)
		}
		r.ready(a)
		if n := r.d.Stats().InFlight; n != 2 {
			t.Fatalf("%d operations in flight, want accept and ready", n)
		}
		count(0)
		count(time.Millisecond)
		r.d.Cancel(accept)
		if n := r.d.Stats().InFlight; n != 2 {
			t.Fatalf("%d operations in flight before the final completion of the cancelled one is delivered, want 2", n)
		}
		r.d.Close(a)
		for r.unended > 0 {
			count(patience)
		}
		end := r.d.Stats()
		if got := end.Completions - start.Completions; got != delivered {
			t.Errorf("Completions %d, delivered %d", got, delivered)
		}
		if end.InFlight != 0 {
			t.Errorf("InFlight %d at the end", end.InFlight)
		}
		if got := end.Submitted - start.Submitted; got < 3 || got > 10 || end.SQFull != 0 {
			t.Errorf("Submitted %d for three requests and their ends, SQFull %d", got, end.SQFull)
		}
		if end.Sleeps == 0 || end.Enters < end.Sleeps || end.Syscalls <= end.Enters {
			t.Errorf("implausible: %+v", end)
		}
	})
}

// A loop that answers does not feed the collector.
// Matrix: RL-11
func TestSteadyEchoDoesNotAllocate(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		for _, receive := range []bool{false, r.d.Info().Receive} {
			e := newEcho(r)
			if receive {
				e.userA, _ = r.receive(e.a)
				e.userB, _ = r.receive(e.b)
				e.flags = uring.SendQuiet
			}
			for range 100 {
				e.round()
			}
			if n := testing.AllocsPerRun(500, e.round); n != 0 {
				t.Fatalf("%v allocations per round", n)
			}
		}
	})
}

// echo is one request and one answer between two sockets of a driver.
type echo struct {
	r            *rig
	a, b         uring.Socket
	userA, userB uint64
	request      *uring.Vec
	flags        uring.SendFlags
	buf          []byte
}

func newEcho(r *rig) *echo {
	r.t.Helper()
	e := &echo{r: r, buf: make([]byte, 4096), request: r.vec(make([]byte, 32), make([]byte, 32))}
	e.a, e.b = r.pair(uring.SocketOptions{})
	e.userA, _ = r.ready(e.a)
	e.userB, _ = r.ready(e.b)
	return e
}

func (e *echo) round() {
	e.hop(e.a, e.b, e.userB)
	e.hop(e.b, e.a, e.userA)
}

func (e *echo) hop(from, to uring.Socket, user uint64) {
	done, op, err := e.r.d.Send(from, e.request, 7, e.flags)
	if err != nil {
		e.r.t.Fatal(err)
	}
	for arrived := 0; arrived < 64 || !done; {
		cs, err := e.r.d.Wait(patience)
		if err != nil || len(cs) == 0 {
			e.r.t.Fatalf("Wait: %v, %v", cs, err)
		}
		for _, c := range cs {
			switch {
			case c.Op == op && c.Kind == uring.KindSend:
				done = true
			case c.Kind == uring.KindReceive:
				arrived += len(c.Data)
				e.r.d.Release(c.Buf)
			case c.User == user && e.flags == 0:
				for {
					n, errno := e.r.d.Recv(to, e.buf, nil)
					arrived += n
					if errno != 0 || n < len(e.buf) {
						break
					}
				}
			}
		}
	}
}
