package loop

import (
	"bytes"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// defaultStallAfter is how long a core may stand still with work before it
// counts as stalled.
const defaultStallAfter = time.Second

// ErrStalled is returned by calls that wait for a core that does not turn.
var ErrStalled = errors.New("loop: core stalled")

// health show whether a core turns.
type health struct {
	turns     atomic.Uint64 // written by the core, once per turn
	stalls    atomic.Uint64 // times that it was found stalled
	failure   atomic.Pointer[string]
	goroutine []byte // "goroutine N ", how its stack begins; set before the core is used

	mu    sync.Mutex
	still chan struct{} // closed by found; nil: nobody waits; guarded by mu
	at    uint64        // turns when it was closed; guarded by mu
}

// stalled returns a channel that is closed while the core does not turn. A core that
// has turned since it was found stalled is not any more: the watch sees that only at
// its next look. Any goroutine.
func (v *health) stalled() chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.watched()
}

// watched is stalled. The lock is held.
func (v *health) watched() chan struct{} {
	if v.still == nil || isClosed(v.still) && v.turns.Load() != v.at {
		v.still = make(chan struct{})
	}
	return v.still
}

// found says that the core is stalled since it had turned so often.
func (v *health) found(turns uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = turns
	if still := v.watched(); !isClosed(still) {
		close(still)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Healthy says that the core is running, and turns: neither failed, stopped,
// being removed nor stalled. Any goroutine.
func (c *Core) Healthy() bool {
	return !isClosed(c.vitals.stalled()) && c.State() == CoreRunning
}

// Ask runs f on the core and waits for its answer, but not for a core that is
// stalled (ErrStalled): statistics must be available when a core stalls. On a
// core it fails with ErrOnCore.
func Ask[T any](c *Core, f func(c *Core) T) (T, error) {
	var none, v T
	if c.plane.OnCore() {
		return none, ErrOnCore
	}
	still := c.vitals.stalled()
	if isClosed(still) && !isClosed(c.done) {
		return none, ErrStalled // without a task in the mailbox for each call
	}
	ran := make(chan struct{})
	err := c.Do(func(c *Core) { v = f(c); close(ran) })
	if err == nil {
		err = c.await(ran, still)
	}
	if err != nil {
		return none, err // a core that was stalled may write v later
	}
	return v, nil
}

// stallWatch looks at the cores in intervals. A core is stalled if it has had work in three looks
// in a row, the first of them Config.StallAfter ago, and has not turned since: a callback blocks, a
// wake-up was lost, or the machine gives the thread no time. Two looks do not tell: a core that is
// about to sleep at the first, and about to wake up at the second, has work in both. Nor does the
// number of looks: after a late one the next one follows at once.
type stallWatch struct {
	p     *Plane
	after time.Duration
	seen  map[*Core]*observation
	once  sync.Once // of end
	stop  chan struct{}
	done  chan struct{}
}

// observation is the state of a core at the last look.
type observation struct {
	looks   int // in a row in which it had work and these turns; 0: it had no work
	turns   uint64
	since   time.Time // of the first look with these turns
	stalled bool
}

// startStallWatch returns nil if the plane is not to be watched.
func startStallWatch(p *Plane) *stallWatch {
	if p.cfg.StallAfter < 0 || p.cfg.Stepped != nil {
		return nil
	}
	w := newStallWatch(p)
	go w.run()
	return w
}

func newStallWatch(p *Plane) *stallWatch {
	return &stallWatch{
		p: p, after: p.cfg.StallAfter + p.cfg.Spin, // while a core spins it does not turn
		seen: make(map[*Core]*observation),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
}

func (w *stallWatch) run() {
	defer close(w.done)
	tick := time.NewTicker((w.after + 1) / 2)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		// A process that was suspended, or got no CPU time, says nothing
		// about its cores.
		w.look(now, now.Sub(last) > 2*w.after)
		last = now
	}
}

// end stops the watch, if there is one, and waits for it.
func (w *stallWatch) end() {
	if w == nil {
		return
	}
	w.once.Do(func() { close(w.stop) })
	<-w.done
}

// look visits all cores. fresh forgets the last observations, but for stalls.
func (w *stallWatch) look(now time.Time, fresh bool) {
	all := w.p.All()
	if len(w.seen) > len(all) {
		maps.DeleteFunc(w.seen, func(c *Core, _ *observation) bool { return !slices.Contains(all, c) })
	}
	for _, c := range all {
		turns := c.vitals.turns.Load()
		busy := !c.stopping.Load() && (!c.sleeping.Load() || !c.box.empty())
		s := w.seen[c]
		if s == nil {
			s = new(observation)
			w.seen[c] = s
		}
		switch {
		case busy && s.looks > 0 && turns == s.turns && (!fresh || s.stalled):
			if s.looks++; s.looks > 2 && !s.stalled && now.Sub(s.since) >= w.after {
				s.stalled = true
				w.report(c, now.Sub(s.since))
			}
		default:
			if s.stalled {
				w.p.cfg.Logger.Warn("core turns again", "core", c.id, "stalled", now.Sub(s.since))
			}
			*s = observation{turns: turns, since: now}
			if busy {
				s.looks = 1
			}
		}
	}
}

// report logs a stall, once, with the stack of the core.
func (w *stallWatch) report(c *Core, since time.Duration) {
	c.vitals.stalls.Add(1)
	c.vitals.found(w.seen[c].turns)
	w.p.cfg.Logger.Error("core stalled", "core", c.id, "for", since, "stack", string(c.vitals.stack()))
}

// maxStack bounds the dump of all goroutines in which a core's is looked for.
const maxStack = 16 << 20

// stack is the stack of the core's goroutine. The runtime dumps only all of
// them, with the world stopped meanwhile: this is for a core that stands still
// anyway.
func (v *health) stack() []byte {
	for size := 64 << 10; ; size *= 4 {
		all := make([]byte, size)
		n := runtime.Stack(all, true)
		if one := findStack(all[:n], v.goroutine); one != nil {
			return one
		}
		if n < size || size >= maxStack {
			return []byte("not among the goroutines of the dump")
		}
	}
}

// findStack takes the goroutine that begins with head out of a dump of all.
func findStack(all, head []byte) []byte {
	if len(head) == 0 {
		return nil
	}
	for one := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.HasPrefix(one, head) {
			return bytes.TrimSpace(one)
		}
	}
	return nil
}

// goroutineHead is how the stack of the calling goroutine begins.
func goroutineHead() []byte {
	var b [64]byte
	head, _, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte("["))
	return bytes.Clone(head)
}
