package control

import (
	"sync"
	"sync/atomic"
)

// dispatchQueue carries messages of one connection from its core to a
// goroutine, in order. The goroutine exists while there are messages.
type dispatchQueue struct {
	mu      sync.Mutex
	waiting []queuedMessage // guarded by mu
	running bool            // guarded by mu
	session atomic.Uint64   // counts what discard ended; changes under mu
	idle    chan struct{}   // closed when there is nothing left; guarded by mu
}

type queuedMessage struct {
	d    *Dispatcher
	m    *Message
	size int // when it came; on a local connection it is reserved
}

// done lets go of a message that has been dispatched, or never will be.
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
			e.done(c) // after the shutdown: nobody is called any more
		}
		q.waiting = nil
		return
	}
	q.running = true
	go q.run(m, c)
}

func (q *dispatchQueue) run(m *Messenger, c *Conn) {
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
			if q.idle != nil {
				close(q.idle)
				q.idle = nil
			}
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, e := range batch {
			if !c.over.Load() && q.session.Load() == session {
				e.d.Queued(c, e.m)
			}
			e.done(c)
		}
	}
}

// discard drops what waits: it is of a session that has ended.
func (q *dispatchQueue) discard(c *Conn) {
	q.mu.Lock()
	q.session.Add(1)
	old := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	for _, e := range old {
		e.done(c)
	}
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
