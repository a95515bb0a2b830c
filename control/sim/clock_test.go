//go:build !race

package sim_test

import (
	"math/rand/v2"
	"sync"
	"time"
)

// simClock is a node's time for the control plane. Its timers may be set by
// any goroutine; they reach the network when all of them stand still.
type simClock struct {
	n *node
}

// simTimers are the timers that were set since the world last moved.
type simTimers struct {
	mu  sync.Mutex
	set []*simTimer
}

type simTimer struct {
	d    time.Duration
	f    func()
	over bool // run or stopped; guarded by simTimers.mu
}

func (c simClock) Now() time.Time {
	return time.Unix(1_700_000_000, 0).Add(c.n.w.net.Now() + c.n.skew)
}

func (c simClock) AfterFunc(d time.Duration, f func()) func() bool {
	ts := &c.n.w.timers
	t := &simTimer{d: d, f: f}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.set = append(ts.set, t)
	return func() bool { return ts.end(t) }
}

// end says whether the timer was still to come.
func (ts *simTimers) end(t *simTimer) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	was := t.over
	t.over = true
	return !was
}

// collect gives the new timers to the network.
func (w *world) collect() {
	w.timers.mu.Lock()
	set := w.timers.set
	w.timers.set = nil
	w.timers.mu.Unlock()
	for _, t := range set {
		w.net.After(t.d, func() {
			if w.timers.end(t) {
				w.woken = true
				go t.f()
			}
		})
	}
}

// randReader makes cookies and nonces repeatable.
type randReader struct{ r *rand.Rand }

func (r randReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.r.Uint32())
	}
	return len(p), nil
}
