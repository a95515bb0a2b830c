// Package planetest is what tests of the loop and tests of what stands on it
// share: engines to run over, planes that end with their test, connections, and a
// bed on which the test itself turns a core. The tests of package loop are inside
// of it, so nothing here imports it: what a plane, a core or a link is comes as a
// type parameter.
package planetest

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Patience is how long a test waits for what must happen.
const Patience = time.Minute

// Loopback is an address to listen at, with any port.
var Loopback = netip.MustParseAddrPort("127.0.0.1:0")

// Engine is a way to move bytes that a plane can be made with.
type Engine struct {
	Name    string
	Backend uring.Backend
	Receive string // a receive mode of the loop
}

// Engines of this build, with the receive modes that each of them has.
func Engines() []Engine {
	all := []Engine{
		{"epoll", uring.Epoll, "ready"},
		{"ring/auto", uring.IOUring, "auto"},
		{"ring/ready", uring.IOUring, "ready"},
		{"ring/buffers", uring.IOUring, "buffers"},
	}
	if uring.Flavour == uring.Epoll {
		return all[:1]
	}
	return all
}

// OverEngines runs f over each engine of the build, with the receive modes that it
// has.
func OverEngines(t *testing.T, f func(t *testing.T, e Engine)) {
	t.Helper()
	for _, one := range Engines() {
		t.Run(one.Name, func(t *testing.T) { f(t, one) })
	}
}

// Start makes a plane that ends with the test. Where the kernel refuses its
// engine, the test is skipped with the reason.
func Start[P interface{ Close() error }](t testing.TB, engine uring.Backend, open func() (P, error)) P {
	t.Helper()
	p, err := open()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EACCES) || errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("%s: refused: %v", engine, err)
	}
	drivertest.Must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Deadline is a context that ends a test which hangs.
func Deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Core is what makes a connection: L is its link, N its listener.
type Core[L, N any] interface {
	Listen(at netip.AddrPort, opt uring.ListenOptions, accept func(L)) (N, error)
	Dial(ctx context.Context, from, to netip.AddrPort, opt uring.SocketOptions) (L, error)
}

// LinkPair connects core a to core b.
func LinkPair[L any, N interface {
	Addr() netip.AddrPort
	Close() error
}](t testing.TB, a, b Core[L, N]) (dialled, accepted L) {
	t.Helper()
	got := make(chan L, 1)
	l, err := b.Listen(Loopback, uring.ListenOptions{}, func(l L) { got <- l })
	drivertest.Must(t, err)
	dialled, err = a.Dial(Deadline(t), netip.AddrPort{}, l.Addr(), uring.SocketOptions{})
	drivertest.Must(t, err)
	select {
	case accepted = <-got:
	case <-time.After(Patience):
		t.Fatal("nothing accepted")
	}
	drivertest.Must(t, l.Close())
	return dialled, accepted
}

// Bed is what a test turns one core with: its driver, its clock and its turns. The
// test makes a plane of one core with Open, Now and Wall, and gives the bed the
// stepper of the core. It is used on the goroutine of the test.
type Bed struct {
	By   stepped.Stepper // of the core
	D    *fakedriver.Driver
	Time time.Duration // that Now says

	t testing.TB
}

// NewBed makes a bed, whose core is still to come.
func NewBed(t testing.TB) *Bed { return &Bed{t: t, D: fakedriver.New()} }

// Open gives the core the driver of the bed.
func (b *Bed) Open(int) (uring.Driver, error) { return b.D, nil }

// Now is the clock of the core.
func (b *Bed) Now() time.Duration { return b.Time }

// Wall is the time of day, which goes with the clock.
func (b *Bed) Wall() time.Time { return time.Unix(1000, 5).Add(b.Time) }

// Settle runs the core until nothing is left to do.
func (b *Bed) Settle() {
	b.t.Helper()
	for range 1 << 20 {
		if err := b.By.Turn(); err != nil {
			b.t.Fatal(err)
		}
		if !b.By.Busy() && len(b.D.Queue) == 0 {
			return
		}
	}
	b.t.Fatal("the core never comes to rest")
}

// After moves the clock and lets timers fire.
func (b *Bed) After(d time.Duration) {
	b.t.Helper()
	b.Time += d
	b.Settle()
	b.Settle()
}

// During runs f, a call that waits for the core, while the core turns.
func (b *Bed) During(f func() error) error {
	b.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	var err error
	b.TurnUntil(func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	return err
}

// TurnUntil turns the core until done says so, and then until it rests.
func (b *Bed) TurnUntil(done func() bool) {
	b.t.Helper()
	for end := time.Now().Add(Patience); !done(); b.Settle() {
		if time.Now().After(end) {
			b.t.Fatal("the call does not end")
		}
	}
	b.Settle()
}
