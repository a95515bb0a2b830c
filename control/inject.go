package control

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The disturbances of Config.Diagnostics.Inject.

// checkInject calls bad for every problem.
func checkInject(i *probe.Inject, bad func(format string, args ...any)) {
	if i.SocketFailures < 0 {
		bad("one socket failure in %d operations", i.SocketFailures)
	}
	delay := func(what string, d probe.Delay) {
		if !(d.Probability >= 0 && d.Probability <= 1) || d.Max < 0 {
			bad("injected delays of %s: probability %v, at most %v", what, d.Probability, d.Max)
		}
	}
	delay("handshakes", i.Handshakes)
	delay("messages", i.Messages)
}

// injector is a probe.Inject at work. Any goroutine may use it.
type injector struct {
	probe.Inject
	clock Clock
	mu    sync.Mutex
	rng   *rand.Rand // guarded by mu
}

// injectInto puts the disturbances, if there are any, into the plane and the probe of c.
func injectInto(what probe.Inject, c *sessions.Config) {
	i := &injector{Inject: what, clock: c.Clock}
	if i.SocketFailures == 0 && i.Handshakes.Probability == 0 && i.Messages.Probability == 0 {
		return
	}
	if i.Seed == 0 {
		i.Seed = random(c.Rand)
	}
	i.rng = rand.New(rand.NewPCG(i.Seed, ^uint64(0))) // no core has that number
	if i.SocketFailures > 0 {
		c.Plane.Open = i.failing(c.Plane.Opener())
	}
	if i.Handshakes.Probability > 0 || i.Messages.Probability > 0 {
		c.Probe = i.slow(c.Probe)
	}
	c.Logger.Warn("faults or delays are injected", "seed", i.Seed, "one_failure_in", i.SocketFailures,
		"handshakes", i.Handshakes.Probability, "messages", i.Messages.Probability)
}

// failing is open with sockets that fail. Bytes that came before are delivered.
func (i *injector) failing(open func(core int) (uring.Driver, error)) func(core int) (uring.Driver, error) {
	return func(core int) (uring.Driver, error) {
		d, err := open(core)
		if err != nil {
			return nil, err
		}
		rng := rand.New(rand.NewPCG(i.Seed, uint64(core))) // the core's
		return faulty.New(d, func(r faulty.Request) (f faulty.Fault) {
			operation := r == faulty.SendEnd || r == faulty.Read || r == faulty.ReceiveEnd
			if operation && rng.IntN(i.SocketFailures) == 0 {
				f.Errno = unix.ECONNRESET
			}
			return f
		}), nil
	}
}

// draw is the length of the next delay, 0 for none.
func (i *injector) draw(d probe.Delay) time.Duration {
	if d.Probability == 0 {
		return 0
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rng.Float64() >= d.Probability {
		return 0
	}
	return time.Duration(i.rng.Float64() * float64(d.Max))
}

// slow is a probe that delays the steps of handshakes, before next is asked, and received
// messages, once next has let them pass.
func (i *injector) slow(next probe.Probe) probe.Probe {
	return probe.Func(func(ctx context.Context, e probe.Event) error {
		if e.When == probe.Before {
			due := make(chan struct{})
			if d := i.draw(i.Handshakes); d > 0 {
				stop := i.clock.AfterFunc(d, func() { close(due) })
				defer stop()
				select {
				case <-due:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		if next != nil {
			if err := next.At(ctx, e); err != nil {
				return err
			}
		}
		if e.When == probe.Data && e.Step == probe.FrameRead && e.Tag == frame.TagMessage {
			if d := i.draw(i.Messages); d > 0 {
				i.clock.AfterFunc(d, e.Conn.(*Conn).s.Handler().Unhold)
				return probe.ErrHold
			}
		}
		return nil
	})
}
