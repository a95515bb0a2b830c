package control

import (
	"context"
	"time"
)

// Clock is the time of the control plane: back-off, deadlines of handshakes.
// The machine's is the default; a simulation brings its own.
type Clock interface {
	Now() time.Time
	// AfterFunc runs f on a goroutine of its own after d. The returned stop
	// prevents that and says whether it came in time.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// MachineClock is the Clock of the machine.
type MachineClock struct{}

// Now is time.Now.
func (MachineClock) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (MachineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// withTimeout is context.WithTimeout by the messenger's clock.
func (m *Messenger) withTimeout(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := m.cfg.Clock.AfterFunc(d, func() { cancel(ErrHandshakeTimeout) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
