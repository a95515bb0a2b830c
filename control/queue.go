package control

import (
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// dispatchQueue carries messages of one connection from its core to a
// goroutine, in order. The goroutine exists while there are messages.
type dispatchQueue struct {
	mu      sync.Mutex
	waiting []queuedMessage // guarded by mu
	running bool            // guarded by mu
	session atomic.Uint64   // counts what discard ended; changes under mu
	idle    chan struct{}   // closed when there is nothing left; guarded by mu
	last    func()          // to be run when there is nothing left; guarded by mu
}

type queuedMessage struct {
	d    *Dispatcher
	m    *Message
	size int // when it came; on a local connection it is reserved
}

// drop releases a message that never will be dispatched.
func (e queuedMessage) drop(c *Conn) {
	if c.local {
		dataplane.Settle(e.m, OutcomeDropped)
	}
	e.done(c)
}

// done releases a message that has been dispatched.
func (e queuedMessage) done(c *Conn) {
	e.m.Release()
	if c.local {
		c.h.Unreserve(e.size)
	}
}

func (q *dispatchQueue) push(m *Messenger, c *Conn, d *Dispatcher, msg *Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, queuedMessage{d, msg, msg.Size()})
	if q.running {
		return
	}
	if !m.queues.enter() {
		for _, e := range q.waiting {
			e.drop(c) // after the shutdown no dispatcher is called
		}
		q.waiting = nil
		return
	}
	q.running = true
	go q.run(m, c)
}

func (q *dispatchQueue) run(m *Messenger, c *Conn) {
	offCore()
	defer m.queues.leave()
	var batch []queuedMessage
	for {
		q.mu.Lock()
		session := q.session.Load()
		clear(batch)
		batch, q.waiting = q.waiting, batch[:0]
		if len(batch) == 0 {
			q.running = false
			q.waiting = nil
			last := q.last
			if q.last = nil; last != nil {
				c.over.Store(true)
			}
			if q.idle != nil {
				close(q.idle)
				q.idle = nil
			}
			q.mu.Unlock()
			if last != nil {
				last()
			}
			return
		}
		q.mu.Unlock()
		for _, e := range batch {
			if c.over.Load() || q.session.Load() != session {
				e.drop(c)
				continue
			}
			m.mu.check.mustBeFree("a dispatcher")
			if c.local { // before the dispatcher can send it on
				dataplane.Settle(e.m, OutcomeAcknowledged)
			}
			e.d.Queued(c, e.m)
			e.done(c)
		}
	}
}

// discard drops the messages that wait, as their session has ended.
func (q *dispatchQueue) discard(c *Conn) {
	q.mu.Lock()
	q.session.Add(1)
	old := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	c.reads.lose()
	for _, e := range old {
		e.drop(c)
	}
}

// finish ends the dispatching: nothing is dispatched any more behind what has
// been pushed. f runs behind that, on the goroutine of the queue; if there is
// nothing finish returns false, and f is not called.
func (q *dispatchQueue) finish(c *Conn, f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running {
		c.over.Store(true)
		return false
	}
	q.last = f
	return true
}

// isIdle says that everything that was pushed has been dispatched.
func (q *dispatchQueue) isIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.running
}

// drained returns a channel that closes when everything that was pushed has
// been dispatched.
func (q *dispatchQueue) drained() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	if !q.running {
		close(q.idle)
		q.idle = nil
	}
	return idle
}
