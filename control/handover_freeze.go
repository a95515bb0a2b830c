package control

import (
	"context"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// frozen is a messenger that stands still for a hand-over: nothing is
// accepted, lossless sessions have neither socket nor attempt nor timer, and no
// new one begins.
type frozen struct {
	m         *Messenger
	listeners []*dataplane.Listener
	conns     []*Conn
	prev      []*attempt      // interrupted, may still be running
	delayed   []chan struct{} // closed when a session's socket is
}

// quietTime is how long handshakes that are under way get to end before the
// sessions stand still; quietPoll is how often they are counted.
const (
	quietTime = 500 * time.Millisecond
	quietPoll = time.Millisecond
)

// quiet stops accepting and lets the handshakes of accepted sockets end, so
// that their peers see no failure. Those that take longer than usual are left
// to fail: for a lossless session, as the successor has it then.
func (m *Messenger) quiet(ctx context.Context) (*frozen, error) {
	f := &frozen{m: m}
	m.mu.Lock()
	f.listeners = m.listeners
	m.mu.Unlock()
	for _, l := range f.listeners {
		if err := l.Pause(); err != nil {
			return f, badRecord("%w", err)
		}
	}
	tick := time.NewTicker(quietPoll)
	defer tick.Stop()
	late := time.NewTimer(quietTime)
	defer late.Stop()
	for {
		m.mu.Lock()
		n := m.halfOpen + int(m.arriving.Load())
		m.mu.Unlock()
		if n == 0 {
			return f, nil
		}
		select {
		case <-tick.C:
		case <-late.C:
			return f, nil
		case <-ctx.Done():
			return f, badRecord("%w", context.Cause(ctx))
		}
	}
}

// freeze stops all lossless sessions at once.
func (f *frozen) freeze() {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handing = handingFrozen
	for _, c := range m.sorted() {
		if c.policy.Lossy || c.local {
			continue
		}
		f.conns = append(f.conns, c)
		c.frozen = true
		c.stopTimer()
		if c.att != nil {
			c.att.cancel(ErrHandedOver)
			f.prev = append(f.prev, c.att)
			c.att = nil
		}
		switch c.state {
		case StateReady, StateConnecting, StateEstablishing, StateReplacing:
			c.move(evStandby)
		}
		delayed := make(chan struct{})
		f.delayed = append(f.delayed, delayed)
		c.h.Delay(false, func(dataplane.Mirror) { close(delayed) })
	}
}

// settle waits until nothing moves any more: no attempt, no dispatch of what was
// received.
func (f *frozen) settle(ctx context.Context) error {
	for _, a := range f.prev {
		if err := f.wait(ctx, a.done); err != nil {
			return err
		}
	}
	for i, c := range f.conns {
		if err := f.wait(ctx, f.delayed[i]); err != nil {
			return err
		}
		if err := f.wait(ctx, c.queue.drained()); err != nil {
			return err
		}
	}
	return nil
}

func (f *frozen) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return badRecord("sessions do not come to rest: %w", context.Cause(ctx))
	}
}

// thaw lets everything go on.
func (f *frozen) thaw() {
	m := f.m
	m.mu.Lock()
	m.handing = handingNone
	for _, c := range f.conns {
		if c.state == StateClosing {
			continue
		}
		c.frozen = false
		c.h.Thaw()
		c.goOn()
	}
	m.mu.Unlock()
	for _, l := range f.listeners {
		_ = l.Resume() // fails only if the core is gone, and the listener with it
	}
}

// goOn is the fault rule for a session that stood still. The lock is held.
func (c *Conn) goOn() {
	switch {
	case c.state == StateWait:
		c.connect(evTimer)
	case c.policy.Server, c.policy.Standby && !c.hasWork():
		c.h.Delay(!c.policy.Server, nil)
	default:
		c.connect(evQueued)
	}
}

// leave ends here what the successor has confirmed.
func (f *frozen) leave() {
	m := f.m
	m.mu.Lock()
	m.handing = handingOver
	m.listeners = nil
	m.steer.close()
	for _, c := range f.conns {
		c.handed.Store(true)
		c.close(false, ErrHandedOver)
	}
	m.mu.Unlock()
	for _, l := range f.listeners {
		_ = l.Close() // fails only if the core is gone, and the listener with it
	}
}
