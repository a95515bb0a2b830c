package control

import "sync/atomic"

// outbox is what one connection has to do, in the order of the steps that decided
// it. What is put under the messenger's lock is given as one batch when the lock is
// freed. Who gives the first one carries it out, and what others give meanwhile: one
// goroutine at a time, so that the handler's events keep their order.
type outbox struct {
	of     *protocolLock
	filled *batch // put, and not given yet; guarded by the messenger's lock
	// given are the batches that nobody has taken, the last one first. nil: none, and
	// nobody runs them. Who runs them leaves protocolLock.taken here for none.
	given atomic.Pointer[batch]
}

// batch is what was put while the lock was held once. It is reused.
type batch struct {
	do   []func()
	next *batch
}

// put has f run once the lock is free, behind what the connection has to do already. The
// lock is held.
func (o *outbox) put(f func()) {
	if o.filled == nil {
		o.of.changed = append(o.of.changed, o)
		o.filled, _ = o.of.batches.Get().(*batch)
		if o.filled == nil {
			o.filled = new(batch)
		}
	}
	o.filled.do = append(o.filled.do, f)
}

// give hands over what was put, and says whether the caller has to run it. The lock is
// held, so that batches are given in the order of the steps.
func (o *outbox) give() (run bool) {
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

// hold has what is put wait until letGo, so that the steps of one goroutine reach
// the core together. It is for an outbox that nobody runs: that of a connection
// which is being made. The lock is held.
func (o *outbox) hold() { o.given.Store(&o.of.taken) }

// letGo ends hold.
func (o *outbox) letGo() { o.run() }

// run carries out what was given. It is for who has to: by give, or behind hold.
func (o *outbox) run() {
	o.of.check.mustBeFree("the actions of a connection")
	if o.of.outboxes.enter() {
		defer o.of.outboxes.leave()
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
