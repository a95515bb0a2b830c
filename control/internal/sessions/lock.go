package sessions

import (
	"slices"
	"sync"
	"sync/atomic"
)

// protocolLock guards the sessions of all connections, and what Manager says. Its holder
// changes memory and does nothing else: what has to be done for a change, from a system
// call to a call of the embedder's code, waits in the outboxes of the connections, or in
// todo, until Unlock has freed the lock. No core takes it, but for a dispatcher that makes
// a connection (LockAnywhere). Builds with the tag "invariants" check that, for all that
// runs on a core.
type protocolLock struct {
	mu      sync.Mutex
	check   lockCheck
	changed []*outbox // for which something was put; guarded by mu, and empty while it is free
	todo    []func()  // see later; guarded by mu
	// outboxes counts those that are being emptied, for Close.
	outboxes WaitGroup
	taken    batch     // see outbox.given
	batches  sync.Pool // of *batch, empty
}

// Lock takes the lock. Manager.lock calls it.
func (l *protocolLock) Lock() {
	l.check.mayLock()
	l.LockAnywhere()
}

// LockAnywhere is Lock, on a core too. Manager.lockAnywhere calls it.
func (l *protocolLock) LockAnywhere() {
	l.mu.Lock()
	l.check.locked()
}

// Unlock frees the lock, and then carries out what was decided under it.
func (l *protocolLock) Unlock() {
	var few [4]*outbox
	ours, todo := few[:0], l.todo
	for _, o := range l.changed {
		if o.giveLocked() {
			ours = append(ours, o)
		}
	}
	clear(l.changed)
	l.changed, l.todo = l.changed[:0], nil
	l.check.unlocked()
	l.mu.Unlock()
	for _, o := range ours {
		o.run()
	}
	for _, f := range todo {
		f()
	}
}

// laterLocked has f run once the lock is free, on the same goroutine.
func (l *protocolLock) laterLocked(f func()) { l.todo = append(l.todo, f) }

// markedList are connections that their user has marked down. MarkDown may run on
// a core, which must not wait for the lock: it only adds the connection here, and
// the next goroutine that takes the lock closes it.
type markedList struct{ head atomic.Pointer[Conn] }

// push adds a connection, at most once.
func (l *markedList) push(c *Conn) {
	for {
		old := l.head.Load()
		c.nextMarked = old
		if l.head.CompareAndSwap(old, c) {
			return
		}
	}
}

func (l *markedList) empty() bool { return l.head.Load() == nil }

// take empties the list, oldest first.
func (l *markedList) take() []*Conn {
	if l.empty() {
		return nil
	}
	var list []*Conn
	for c := l.head.Swap(nil); c != nil; c = c.nextMarked {
		list = append(list, c)
	}
	slices.Reverse(list)
	return list
}

// outbox is what one connection has to do, in the order of the steps that decided it. All
// that is put while the lock is held becomes one batch when the lock is freed. The
// goroutine that gives a batch to an empty outbox carries it out, and then the batches that
// others have given meanwhile: one goroutine at a time, so that the handler's events keep
// their order.
type outbox struct {
	of     *protocolLock
	filled *batch // put, and not given yet; guarded by the messenger's lock
	// given are the batches that nobody has taken, the last one first. nil: there are none,
	// and no goroutine runs them. A goroutine that runs them leaves protocolLock.taken here.
	given atomic.Pointer[batch]
}

// batch is what was put while the lock was held once. It is reused.
type batch struct {
	do   []func()
	next *batch
}

// putLocked has f run once the lock is free, after all that was put before.
func (o *outbox) putLocked(f func()) {
	if o.filled == nil {
		o.of.changed = append(o.of.changed, o)
		o.filled, _ = o.of.batches.Get().(*batch)
		if o.filled == nil {
			o.filled = new(batch)
		}
	}
	o.filled.do = append(o.filled.do, f)
}

// giveLocked hands over what was put, and says whether the caller has to run it. The lock
// is held, so that batches are given in the order of the steps.
func (o *outbox) giveLocked() (run bool) {
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

// holdLocked has what is put wait until letGo, so that the steps of one goroutine reach the
// core together. The connection is being made: no goroutine runs its outbox yet.
func (o *outbox) holdLocked() { o.given.Store(&o.of.taken) }

// letGo ends hold.
func (o *outbox) letGo() { o.run() }

// run carries out what was given. The caller is told to by give, or has called hold.
func (o *outbox) run() {
	o.of.check.mustBeFree("the actions of a connection")
	if o.of.outboxes.Enter() {
		defer o.of.outboxes.Leave()
	}
	for none := &o.of.taken; ; {
		o.carryOut(o.given.Swap(none))
		if o.given.CompareAndSwap(none, nil) {
			return
		}
	}
}

// carryOut does what is in the batches of a list, the last one of which comes first.
func (o *outbox) carryOut(list *batch) {
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

// mostKept is for how many actions a batch that is reused has room. A step has rarely
// more.
const mostKept = 64

// reuse keeps a batch for another time.
func (l *protocolLock) reuse(b *batch) {
	b.next = nil
	clear(b.do)
	b.do = b.do[:0]
	if cap(b.do) <= mostKept {
		l.batches.Put(b)
	}
}
