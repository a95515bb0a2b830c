package planetest

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/uring"
)

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
