package control_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
)

// pressedClock is the machine's time, but a test can have its timers go off
// early: what depends on a limit then needs neither a short limit, which a busy
// machine would miss elsewhere, nor the patience for a long one.
type pressedClock struct {
	ahead atomic.Int64 // of the machine's time
	mu    sync.Mutex
	set   []*pressedTimer // not run and not stopped; guarded by mu
	past  []time.Duration // of the timers that went off early, in order; guarded by mu
}

type pressedTimer struct {
	d    time.Duration
	f    func()
	real *time.Timer
}

// of has a node live by this clock.
func (c *pressedClock) of(cfg *nodetest.NodeConfig) { cfg.Clock = c }

func (c *pressedClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// pass puts the clock forward. Timers that are set go on as they would.
func (c *pressedClock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

func (c *pressedClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &pressedTimer{d: d, f: f}
	t.real = time.AfterFunc(d, func() {
		if c.take(t) {
			f()
		}
	})
	c.set = append(c.set, t)
	return func() bool { t.real.Stop(); return c.take(t) }
}

// take says whether a timer was set, and is not any more.
func (c *pressedClock) take(t *pressedTimer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.set, t)
	if i < 0 {
		return false
	}
	c.set = slices.Delete(c.set, i, i+1)
	return true
}

// press has all timers of these durations go off now, and says how many there
// were.
func (c *pressedClock) press(which func(d time.Duration) bool) int {
	c.mu.Lock()
	now := slices.DeleteFunc(slices.Clone(c.set), func(t *pressedTimer) bool { return !which(t.d) })
	c.mu.Unlock()
	n := 0
	for _, t := range now {
		if t.real.Stop(); c.take(t) {
			n++
			c.mu.Lock()
			c.past = append(c.past, t.d)
			c.mu.Unlock()
			t.f()
		}
	}
	return n
}

// waiting says whether a timer of this duration is set.
func (c *pressedClock) waiting(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.set, func(t *pressedTimer) bool { return t.d == d })
}

// pressed are the durations of the timers that went off early.
func (c *pressedClock) pressed() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.past)
}

// handClock is a clock that stands still until the test moves it.
type handClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[*handTimer]struct{}
}

type handTimer struct {
	at time.Time
	f  func()
}

func newHandClock() *handClock {
	return &handClock{now: time.Unix(1_700_000_000, 0), timers: make(map[*handTimer]struct{})}
}

// of has a node live by this clock.
func (c *handClock) of(cfg *nodetest.NodeConfig) { cfg.Clock = c }

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{c.now.Add(d), f}
	c.timers[t] = struct{}{}
	return func() bool { return c.take(t) }
}

func (c *handClock) take(t *handTimer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.timers[t]
	delete(c.timers, t)
	return ok
}

// pass moves the clock on and runs what is due.
func (c *handClock) pass(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*handTimer
	for t := range c.timers {
		if !t.at.After(c.now) {
			due = append(due, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		if c.take(t) {
			t.f()
		}
	}
}
