// Package unanswered knows since when connections dial without an answer, and says when that
// is to be logged, and when a connection is to give up.
//
// One timer serves all connections. The lock is this package's alone and is held for a few
// steps, without calls of others: who begins to dial may be a core.
package unanswered

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// First is when the first warning is due, and Most the longest pause between two.
const (
	First = time.Minute
	Most  = time.Hour
)

// Clock is control.Clock.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Watch has the connections of type C that dial and get no answer. Any goroutine may call its
// methods.
type Watch[C any] struct {
	clock Clock
	due   func(Due[C])

	mu     sync.Mutex // guards what follows, and the places
	list   list.List  // of *place[C], who has dialled for longest first
	wakes  time.Time  // when the timer fires; zero: it does not run
	closed bool
	stop   func() bool
}

// Due says that a connection has dialled for so long that a warning is due, or its end.
type Due[C any] struct {
	Conn  C
	Since time.Time
	Over  bool // it is to give up; said again later if it does not
}

// Entry is what a connection has of a Watch: most of them are answered, so it is small. The
// zero value is ready.
type Entry[C any] struct {
	place atomic.Pointer[place[C]] // nil: it does not dial, or is answered; changes under the lock
}

// place is a connection in the list.
type place[C any] struct {
	conn   C
	since  time.Time // never changes
	at     *list.Element
	giveUp time.Duration // 0: never
	warn   time.Time     // when the next warning is due
}

// New makes a Watch that calls due without its lock, on the clock's goroutine.
func New[C any](clock Clock, due func(Due[C])) *Watch[C] {
	return &Watch[C]{clock: clock, due: due}
}

// Begin says that a connection begins to dial. It gives up behind giveUp, 0: never. Nothing
// happens if it dials already.
func (w *Watch[C]) Begin(e *Entry[C], conn C, giveUp time.Duration) {
	if e.place.Load() != nil {
		return
	}
	now := w.clock.Now()
	p := &place[C]{conn: conn, since: now, giveUp: giveUp, warn: now.Add(First)}
	w.mu.Lock()
	p.at = w.list.PushBack(p)
	e.place.Store(p)
	arm := w.armLocked(p.next())
	w.mu.Unlock()
	arm(now)
}

// End says that it is answered, or dials no more.
func (w *Watch[C]) End(e *Entry[C]) {
	p := e.place.Load()
	if p == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list.Remove(p.at)
	e.place.Store(nil)
}

// Since is when the connection began to dial; zero: it does not, or is answered.
func (e *Entry[C]) Since() (t time.Time) {
	if p := e.place.Load(); p != nil {
		t = p.since
	}
	return t
}

// next is when something is due.
func (p *place[C]) next() time.Time {
	if over := p.over(); p.giveUp > 0 && over.Before(p.warn) {
		return over
	}
	return p.warn
}

func (p *place[C]) over() time.Time { return p.since.Add(p.giveUp) }

// Count is how many dial without an answer, and since when the first of them does.
func (w *Watch[C]) Count() (n int, oldest time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first := w.list.Front(); first != nil {
		oldest = first.Value.(*place[C]).since
	}
	return w.list.Len(), oldest
}

// Close stops the timer for good.
func (w *Watch[C]) Close() {
	w.mu.Lock()
	w.closed = true
	stop := w.stop
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// armLocked returns what is to be called without the lock to have the timer fire at that
// time, unless it does so before.
func (w *Watch[C]) armLocked(at time.Time) func(now time.Time) {
	if w.closed || !w.wakes.IsZero() && !at.Before(w.wakes) {
		return func(time.Time) {}
	}
	w.wakes = at
	return func(now time.Time) {
		stop := w.clock.AfterFunc(max(at.Sub(now), 0), func() { w.fire(at) })
		w.mu.Lock()
		if w.wakes.Equal(at) {
			w.stop = stop
		}
		closed := w.closed
		w.mu.Unlock()
		if closed {
			stop()
		}
	}
}

// fire is the timer that was armed for that time.
func (w *Watch[C]) fire(at time.Time) {
	now := w.clock.Now()
	w.mu.Lock()
	if !w.wakes.Equal(at) || w.closed {
		w.mu.Unlock()
		return // an earlier one was armed since
	}
	w.wakes = time.Time{}
	var due []Due[C]
	var again time.Time
	for at := w.list.Front(); at != nil; at = at.Next() {
		p := at.Value.(*place[C])
		if !p.next().After(now) {
			over := p.giveUp > 0 && !p.over().After(now)
			due = append(due, Due[C]{Conn: p.conn, Since: p.since, Over: over})
			p.warn = now.Add(max(min(9*now.Sub(p.since), Most), First))
			if over {
				p.giveUp = now.Add(First).Sub(p.since) // if it does not end now
			}
		}
		if next := p.next(); again.IsZero() || next.Before(again) {
			again = next
		}
	}
	arm := func(time.Time) {}
	if !again.IsZero() {
		arm = w.armLocked(again)
	}
	w.mu.Unlock()
	arm(now)
	for _, d := range due {
		w.due(d)
	}
}
