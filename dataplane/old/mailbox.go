package dataplane

import "sync/atomic"

// task is one entry of a core's mailbox. It is embedded in long-lived objects
// (a handler that has something to send) or allocated for a single call.
type task struct {
	next *task
	run  func(c *Core)
	live bool // not for a core that is gone
}

// mailbox hands tasks from any goroutine to one core: push is one
// compare-and-swap, take empties it in one exchange. Tasks of one producer come
// out in the order in which it pushed them.
type mailbox struct{ head atomic.Pointer[task] }

func (b *mailbox) push(t *task) {
	for {
		old := b.head.Load()
		t.next = old
		if b.head.CompareAndSwap(old, t) {
			return
		}
	}
}

func (b *mailbox) empty() bool { return b.head.Load() == nil }

// take removes everything and returns it oldest first.
func (b *mailbox) take() *task {
	var first *task
	for t := b.head.Swap(nil); t != nil; {
		next := t.next
		t.next = first
		first, t = t, next
	}
	return first
}
