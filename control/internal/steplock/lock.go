// Package steplock has the lock under which sessions take their steps, and runs the actions of
// a step once the lock is free. It knows no session: a step puts its actions into the Outbox of
// its connection, where they run in the order of the steps. Check, in builds with the tag
// "invariants" or the race detector, panics where the promise of the lock is broken.
//
// A name that ends with Locked is of a function whose caller holds the lock.
package steplock

import (
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/internal/gate"
)

// Lock guards the sessions of all connections, and the state of their Manager. Its holder
// changes memory and does nothing else: the actions that follow a change, from a system
// call to a call of the embedder's code, wait in the outboxes of the connections, or in
// todo, until Unlock has freed the lock. No core takes it, but for a dispatcher that makes
// a connection (LockAnywhere). Builds with the tag "invariants" check that, for all that
// runs on a core.
type Lock struct {
	mu      sync.Mutex
	Check   Check
	changed []*Outbox // for which something was put; guarded by mu, and empty while it is free
	todo    []func()  // see LaterLocked; guarded by mu
	// Outboxes counts those that are being emptied, for Close.
	Outboxes gate.Gate
	taken    batch     // see Outbox.given
	batches  sync.Pool // of *batch, empty
}

// Lock takes the lock.
func (l *Lock) Lock() {
	l.Check.mayLock()
	l.LockAnywhere()
}

// LockAnywhere is Lock, for a core too.
func (l *Lock) LockAnywhere() {
	l.mu.Lock()
	l.Check.locked()
}

// Unlock frees the lock, and then runs the actions that were put under it.
func (l *Lock) Unlock() {
	var few [4]*Outbox
	ours, todo := few[:0], l.todo
	for _, o := range l.changed {
		if o.giveLocked() {
			ours = append(ours, o)
		}
	}
	clear(l.changed)
	l.changed, l.todo = l.changed[:0], nil
	l.Check.unlocked()
	l.mu.Unlock()
	for _, o := range ours {
		o.run()
	}
	for _, f := range todo {
		f()
	}
}

// LaterLocked has f run once the lock is free, on the same goroutine.
func (l *Lock) LaterLocked(f func()) { l.todo = append(l.todo, f) }

// Outbox has the actions of one connection, in the order of their steps. The actions that are
// put while the lock is held become one batch when the lock is freed. The
// goroutine that gives a batch to an empty outbox carries it out, and then the batches that
// others have given meanwhile: one goroutine at a time, so that the handler's events keep
// their order.
type Outbox struct {
	of     *Lock
	filled *batch // put, and not given yet; guarded by the lock of sessions
	// given are the batches that nobody has taken, the last one first. nil: there are none,
	// and no goroutine runs them. A goroutine that runs them leaves Lock.taken here.
	given atomic.Pointer[batch]
}

// batch has the actions that were put while the lock was held once. It is reused.
type batch struct {
	do   []func()
	next *batch
}

// PutLocked has f run once the lock is free, after all that was put before.
func (o *Outbox) PutLocked(f func()) {
	if o.filled == nil {
		o.of.changed = append(o.of.changed, o)
		o.filled, _ = o.of.batches.Get().(*batch)
		if o.filled == nil {
			o.filled = new(batch)
		}
	}
	o.filled.do = append(o.filled.do, f)
}

// giveLocked hands over the actions that were put, and says whether the caller has to run them.
// Under the lock batches are given in the order of the steps.
func (o *Outbox) giveLocked() (run bool) {
	b := o.filled
	o.filled = nil
	for {
		before := o.given.Load()
		b.next = before
		if o.given.CompareAndSwap(before, b) {
			return before == nil
		}
	}
}

// HoldLocked has actions wait until LetGo, so that those of several steps reach the core
// together. The connection is being made: no goroutine runs its outbox yet.
func (o *Outbox) HoldLocked() { o.given.Store(&o.of.taken) }

// LetGo ends HoldLocked.
func (o *Outbox) LetGo() { o.run() }

// run runs the batches that were given. giveLocked has told the caller to, or it has called HoldLocked.
func (o *Outbox) run() {
	o.of.Check.MustBeFree("the actions of a connection")
	if o.of.Outboxes.Enter() {
		defer o.of.Outboxes.Leave()
	}
	for none := &o.of.taken; ; {
		o.carryOut(o.given.Swap(none))
		if o.given.CompareAndSwap(none, nil) {
			return
		}
	}
}

// carryOut runs the batches of a list, which begins with the last one.
func (o *Outbox) carryOut(list *batch) {
	var first *batch
	for list != nil && list != &o.of.taken {
		list.next, first, list = first, list, list.next
	}
	for first != nil {
		b := first
		first = b.next
		for _, f := range b.do {
			f()
		}
		o.of.reuse(b)
	}
}

// Of sets the lock of an outbox, once.
func (o *Outbox) Of(l *Lock) { o.of = l }

// mostKept is the number of actions for which a batch that is reused has room. A step rarely
// has more.
const mostKept = 64

// reuse keeps a batch for later actions.
func (l *Lock) reuse(b *batch) {
	b.next = nil
	clear(b.do)
	b.do = b.do[:0]
	if cap(b.do) <= mostKept {
		l.batches.Put(b)
	}
}
