package loop

import "sync/atomic"

// Task is one entry of a core's mailbox (Core.Post). It is embedded in
// long-lived objects or allocated for a single call.
type Task struct {
	Run  func(c *Core)
	next *Task
	live bool // not for a core that is gone
}

// mailbox hands tasks from any goroutine to one core: push is one
// compare-and-swap, take empties it in one exchange. Tasks of one producer come
// out in the order in which it pushed them.
type mailbox struct{ head atomic.Pointer[Task] }

func (b *mailbox) push(t *Task) {
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
func (b *mailbox) take() *Task {
	var first *Task
	for t := b.head.Swap(nil); t != nil; {
		next := t.next
		t.next = first
		first, t = t, next
	}
	return first
}
