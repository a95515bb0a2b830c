package loop

import (
	"sync"
	"sync/atomic"
	"time"
)

// Throttle bounds the bytes or the number of received frames, over all connections
// that share it. A connection that finds no room stops reading until other
// connections give units back. A frame gives its units back when it is released, or
// when it enters a sending queue, which then accounts for its memory.
//
// A complete frame takes all of its units at once, in the order in which the
// connections came: no connection passes a waiting one. A frame larger than the whole
// limit passes alone, when nothing else is held. An unfinished frame, of which a part
// has come, takes units for the bytes as they are read. When unfinished frames hold
// all units, none would ever be given back. So one of them, the finisher, goes on
// beyond the limit, which is exceeded by one frame at most.
//
// A limit of 0 means unlimited. All methods may be called by any goroutine;
// only a full throttle takes a lock. A nil throttle does not bound.
type Throttle struct {
	limit atomic.Int64
	used  atomic.Int64
	// unfinished is the part of used that unfinished frames hold.
	unfinished atomic.Int64
	// reserved is the sum of the connections' own shares beyond the limit: at most the
	// reserve.
	reserved atomic.Int64
	// waiting counts the connections in line and the woken one, so that acquire and
	// release see without the lock that no connection waits.
	waiting  atomic.Int64
	finisher atomic.Pointer[waiter] // set with mu held

	mu                sync.Mutex
	waitingUnfinished waitLine // connections with an unfinished frame; they come first
	waitingNew        waitLine // the other connections
	retrying          *waiter  // out of the line, and about to try again
}

// NewThrottle makes a throttle; limit <= 0 means unlimited.
func NewThrottle(limit int64) *Throttle {
	t := &Throttle{}
	t.SetLimit(limit)
	return t
}

// SetLimit changes the limit of later takes. Units held above it drain by themselves.
func (t *Throttle) SetLimit(limit int64) {
	t.limit.Store(max(limit, 0))
	t.notify()
}

// Limit is the bound, 0 for none.
func (t *Throttle) Limit() int64 { return t.limit.Load() }

// Used is the number of units that are held now.
func (t *Throttle) Used() int64 { return t.used.Load() }

// Unfinished is the part of Used that unfinished frames hold.
func (t *Throttle) Unfinished() int64 { return t.unfinished.Load() }

// Waiting is the number of connections that do not read because of t.
func (t *Throttle) Waiting() int64 {
	if t == nil {
		return 0
	}
	return t.waiting.Load()
}

// reservePart: one part in reservePart of the limit is kept on top of it, for the shares
// of all connections (Throttles.Share) together.
const reservePart = 4

// Reserve is the number of units that the shares of all connections may hold together
// beyond the limit, 0 without a limit.
func (t *Throttle) Reserve() int64 { return t.limit.Load() / reservePart }

// takeReserve takes n units of the reserve, for a connection that finds no room below the
// limit.
func (t *Throttle) takeReserve(n int64) bool {
	for {
		reserved := t.reserved.Load()
		if reserved+n > t.Reserve() {
			return false
		}
		if t.reserved.CompareAndSwap(reserved, reserved+n) {
			t.used.Add(n)
			return true
		}
	}
}

// overdrawn says that the frames of other connections hold more than the limit; mine is
// the number of units that the frame of w holds.
func (t *Throttle) overdrawn(mine int64, w *waiter) bool {
	if t == nil {
		return false
	}
	limit := t.limit.Load()
	return limit > 0 && t.used.Load()-mine > limit && !t.goesOn(w)
}

// fits says whether n units can be taken when used are held.
func (t *Throttle) fits(used, n int64) bool {
	limit := t.limit.Load()
	return limit == 0 || used == 0 || used+n <= limit
}

// ample says that n units fit for every possible core at once, and no connection waits.
func (t *Throttle) ample(n int64) bool {
	if t == nil {
		return true
	}
	limit := t.limit.Load()
	return t.waiting.Load() == 0 && (limit == 0 || t.used.Load()+maxCores*n <= limit)
}

// acquire takes n units for a complete frame, or returns false: the caller has to wait.
// first: the caller was woken, and passes the line.
func (t *Throttle) acquire(n int64, first bool) bool {
	if t == nil {
		return true
	}
	if !first && t.waiting.Load() > 0 {
		return false
	}
	for {
		used := t.used.Load()
		if !t.fits(used, n) {
			return false
		}
		if t.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// reserve takes up to n units for the unfinished frame of w.
func (t *Throttle) reserve(n int64, w *waiter) int64 {
	if t == nil {
		return n
	}
	for {
		used, limit := t.used.Load(), t.limit.Load()
		got := n
		if limit > 0 && !t.goesOn(w) {
			got = min(n, limit-used)
		}
		if got <= 0 {
			return 0
		}
		if t.used.CompareAndSwap(used, used+got) {
			t.unfinished.Add(got)
			return got
		}
	}
}

// goesOn says that the unfinished frame of w goes on beyond the limit: w is the finisher
// here, or of the Shared throttle of its budget. Otherwise the finishers of two throttles
// could wait for each other. So the limit of another throttle than Shared is exceeded by
// two frames at most.
func (t *Throttle) goesOn(w *waiter) bool {
	return t.finisher.Load() == w || w.of != nil && w.of.Shared != nil && w.of.Shared.finisher.Load() == w
}

// force takes n units, over the limit if need be.
func (t *Throttle) force(n int64) {
	if t != nil {
		t.used.Add(n)
	}
}

// complete says that n units of an unfinished frame now belong to a complete one.
func (t *Throttle) complete(n int64) {
	if t != nil {
		t.unfinished.Add(-n)
	}
}

// release gives n units back.
func (t *Throttle) release(n int64) {
	if t == nil {
		return
	}
	t.used.Add(-n)
	if t.waiting.Load() > 0 {
		t.notify()
	}
}

// finished says that w has no unfinished frame any more.
func (t *Throttle) finished(w *waiter) {
	if t != nil && t.finisher.Load() == w {
		t.finisher.Store(nil)
		t.notify()
	}
}

// waiter is the place of one connection in the line of a throttle. Its socket owns it;
// the lock of that throttle guards line, prev and next.
type waiter struct {
	core   *Core
	task   Task // tries again, on the core
	posted atomic.Bool

	// Set by the socket before it waits.
	of    *Throttles // its receive budget
	need  int64      // units of the complete frame, or enough units to make a read worthwhile
	begun bool       // it has an unfinished frame

	line       *waitLine
	prev, next *waiter
}

// wake has the socket try again. Further calls before that do nothing.
func (w *waiter) wake() {
	if w.posted.CompareAndSwap(false, true) {
		w.core.Post(&w.task)
	}
}

// waitLine is a list of waiters.
type waitLine struct{ first, last *waiter }

// add puts w at the end, or at the head.
func (l *waitLine) add(w *waiter, ahead bool) {
	w.line = l
	if ahead {
		w.next = l.first
		l.first = w
		if w.next != nil {
			w.next.prev = w
		} else {
			l.last = w
		}
		return
	}
	w.prev = l.last
	l.last = w
	if w.prev != nil {
		w.prev.next = w
	} else {
		l.first = w
	}
}

func (l *waitLine) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.line, w.prev, w.next = nil, nil, nil
}

// wait puts w in line, again: at its head.
func (t *Throttle) wait(w *waiter, again bool) {
	t.mu.Lock()
	line := &t.waitingNew
	if w.begun {
		line = &t.waitingUnfinished
	}
	line.add(w, again)
	t.waiting.Add(1)
	t.mu.Unlock()
	// Units may have come back between the failed take and now.
	t.notify()
}

// inLine says whether w waits and was not called.
func (t *Throttle) inLine(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.line != nil
}

// leave takes w out of the line, or ends its retry. The caller then calls notify for
// the next waiter.
func (t *Throttle) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case w.line != nil:
		w.line.remove(w)
	case t.retrying == w:
		t.retrying = nil
	default:
		return
	}
	t.waiting.Add(-1)
}

// notify wakes the first waiter if it can go on. The waiter tries again, and then,
// successful or not, wakes the next one: units that come back never wake all waiters
// at once.
func (t *Throttle) notify() {
	t.mu.Lock()
	w := t.waitingUnfinished.first
	if w == nil {
		w = t.waitingNew.first
	}
	if w == nil || t.retrying != nil || !t.canAcquire(w) {
		t.mu.Unlock()
		return
	}
	w.line.remove(w)
	t.retrying = w
	t.mu.Unlock()
	w.wake()
}

// canAcquire says whether w need not wait any longer. The lock is held.
func (t *Throttle) canAcquire(w *waiter) bool {
	used := t.used.Load()
	if !w.begun || t.goesOn(w) {
		return t.fits(used, w.need) || w.begun
	}
	if limit := t.limit.Load(); limit == 0 || used+min(w.need, limit/4) < limit {
		return true
	}
	// Only unfinished frames hold units: one of them must go on, or no unit ever comes
	// back.
	return used <= t.unfinished.Load() && t.finisher.CompareAndSwap(nil, w)
}

// Pause stops reading until full, one of ts, has room for need units, or for more of an
// unfinished frame (begun). Then Feed is called again; it takes the units that it could
// not get before, or calls Pause again.
func (s *Socket) Pause(ts *Throttles, full *Throttle, need int64, begun bool) {
	s.core.assertOwner()
	s.paused = full
	s.stopReceiving()
	s.waiter.of, s.waiter.need, s.waiter.begun = ts, need, begun
	if !s.retrying {
		s.core.stats.Paused++
		s.pausedAt = s.core.now
	}
	ts.since.Store(int64(s.pausedAt))
	ts.paused.Store(&s.waiter)
	full.wait(&s.waiter, s.retrying)
	if full == ts.Shared && ts.held.Load() < s.refused {
		s.waiter.wake() // units of its own share came back between the failed take and now
	}
	s.refused = 0 // the next stop may have another reason
}

// Passed says that the frame at which the socket stopped has got its units.
func (s *Socket) Passed() {
	s.core.assertOwner()
	s.retrying = false
}

// Stopped says that the socket does not read, because of a throttle, Hold, or Rest.
func (s *Socket) Stopped() bool {
	s.core.assertOwner()
	return s.paused != nil
}

// StoppedSince is the time at which the socket stopped, on the core's clock.
func (s *Socket) StoppedSince() time.Duration {
	s.core.assertOwner()
	return s.pausedAt
}

// Begin starts the time of Took for an unfinished frame. Time in which the socket is
// stopped does not count.
func (s *Socket) Begin() {
	s.core.assertOwner()
	s.began = s.core.now
}

// Took is the time since Begin.
func (s *Socket) Took() time.Duration {
	s.core.assertOwner()
	if s.paused != nil {
		return s.pausedAt - s.began
	}
	return s.core.now - s.began
}

// Hold stops reading until Release.
func (s *Socket) Hold() {
	s.core.assertOwner()
	if s.paused == nil || s.Resting() {
		s.stop(&s.core.held)
	}
}

// Rest stops reading until EndRest, or until Release if Hold comes meanwhile. It does
// nothing to a socket that is stopped already.
func (s *Socket) Rest() {
	s.core.assertOwner()
	if s.paused == nil {
		s.stop(&s.core.resting)
	}
}

// stop stops reading for a reason that is no throttle.
func (s *Socket) stop(why *Throttle) {
	if s.paused == nil {
		s.pausedAt = s.core.now
	}
	s.paused = why
	s.stopReceiving()
}

// Resting says that the socket does not read because of Rest.
func (s *Socket) Resting() bool { return s.paused == &s.core.resting }

// EndRest ends a Rest, and does nothing without one. It may call Feed.
func (s *Socket) EndRest() {
	s.core.assertOwner()
	if !s.dead && s.Resting() {
		s.proceed()
	}
}

// Release ends a Hold, and does nothing without one. It may call Feed.
func (s *Socket) Release() {
	s.core.assertOwner()
	if s.dead || s.paused != &s.core.held {
		return
	}
	s.proceed()
}

// proceed reads again.
func (s *Socket) proceed() {
	s.paused = nil
	s.began += s.core.now - s.pausedAt
	s.alive()
	s.feedBacklog()
	s.resumeReading()
}

// alive restarts the idle time: the peer was not silent, the socket did not read.
func (s *Socket) alive() { s.touched = s.core.now }

// Throttled says that a throttle has stopped the socket, rather than Hold or Rest.
func (s *Socket) Throttled() bool {
	s.core.assertOwner()
	return s.paused != nil && s.paused != &s.core.held && !s.Resting()
}

// unpause tries again, and then lets the next waiter try.
func (s *Socket) unpause(*Core) {
	s.waiter.posted.Store(false)
	if !s.Throttled() {
		return
	}
	t := s.paused
	if t.inLine(&s.waiter) && !s.shareFits() {
		return // units of its own share came back, but not enough
	}
	since := s.pausedAt
	s.leaveLine()
	if !s.dead {
		s.alive()
		s.retrying = true
		s.feedBacklog()
		s.retrying = false
		s.resumeReading()
	}
	if !s.Throttled() {
		s.began += s.core.now - since
	} else if s.paused == t {
		s.pausedAt = since
		s.waiter.of.since.Store(int64(since))
	}
	t.notify()
}

// shareFits says that the connection's own share has room for the units that the socket
// needs.
func (s *Socket) shareFits() bool {
	t, need := s.waiter.of, s.waiter.need
	if s.waiter.begun {
		need = 1
	}
	return s.paused == t.Shared && t.held.Load()+need <= t.Share
}

// leaveLine ends the wait for the receive budget. The caller then calls notify for the
// next waiter.
func (s *Socket) leaveLine() {
	s.paused.leave(&s.waiter)
	s.paused = nil
	s.waiter.of.paused.Store(nil)
}

// place is the socket's place in line; nil has none.
func (s *Socket) place() *waiter {
	if s == nil {
		return nil
	}
	return &s.waiter
}
