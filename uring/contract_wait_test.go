package uring_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Events that nobody asked for do not end a Wait.
func TestWaitReturnsNotBeforeACompletionOrItsTimeout(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, conn := r.plain()
		write(t, conn, []byte("nobody asked"))
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
		r.d.Close(s)
	})
}

func TestWaitDoesNotSleepOnWhatIsThere(t *testing.T) {
	overDrivers(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, _ := r.plain()
		user, op := r.ready(s)
		r.settle()
		r.d.Cancel(op)
		r.step(-1) // would hang
		r.expectFinal(user, unix.ECANCELED)
		user, _ = r.ready(s)
		r.settle()
		r.d.Close(s)
		r.step(-1)
		r.expectFinal(user, unix.ECANCELED)
	})
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
		if got := end.Submitted - start.Submitted; got < 3 {
			t.Errorf("Submitted %d for three requests", got)
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
				e.quiet = true
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
	quiet        bool
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
	done, op, err := e.r.d.Send(from, e.request, 7, e.quiet)
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
			case c.User == user && !e.quiet:
				for {
					n, errno := e.r.d.Recv(to, e.buf)
					arrived += n
					if errno != 0 || n < len(e.buf) {
						break
					}
				}
			}
		}
	}
}
