package control

import (
	"slices"
	"sync"
	"sync/atomic"
)

// protocolLock guards a messenger's protocol: the sessions of all connections, and
// what Messenger says. Who holds it changes memory, and nothing else: what has to
// be done for a change, from a system call to a call of user code, waits in the
// outboxes of the connections, or in todo, until Unlock has freed it. No core
// takes it, but for a dispatcher that makes a connection (LockAnywhere). Builds with
// the tag "invariants" check that, for all that runs on a core.
//
// Everything above takes the lock, so what it calls back is a function that New gives
// it: close, which steps the machine of a connection that was marked down (runner.go).
type protocolLock struct {
	mu      sync.Mutex
	check   lockCheck
	marked  markedList  // marked down, and not closed yet
	close   func(*Conn) // ends one of them; set by New
	changed []*outbox   // for which something was put; guarded by mu, and empty while it is free
	todo    []func()    // see later; guarded by mu
	// outboxes counts those that are being emptied, for Shutdown.
	outboxes waitGroup
	taken    batch     // see outbox.given
	batches  sync.Pool // of *batch, empty
}

// Lock takes the lock, and first closes the connections that were marked down:
// the caller sees them closed.
func (l *protocolLock) Lock() {
	l.check.mayLock()
	l.lock()
}

// LockAnywhere is Lock for the one call that a dispatcher may make on a core:
// Connect, if it has to make a connection. The core may wait for a change of memory
// then, and for nothing else.
func (l *protocolLock) LockAnywhere() { l.lock() }

// lock closes the connections that were marked down, before anybody else sees them
// under the lock.
func (l *protocolLock) lock() {
	l.mu.Lock()
	l.check.locked()
	for _, c := range l.marked.take() {
		l.close(c)
	}
}

// endMarked closes the connections that were marked down, if nobody has done so
// yet.
func (l *protocolLock) endMarked() {
	l.Lock()
	defer l.Unlock()
}

// Unlock frees the lock, and then carries out what was decided under it.
func (l *protocolLock) Unlock() {
	var few [4]*outbox
	ours, todo := few[:0], l.todo
	for _, o := range l.changed {
		if o.give() {
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

// later has f run once the lock is free, on the same goroutine. The lock is held.
func (l *protocolLock) later(f func()) { l.todo = append(l.todo, f) }

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
