package dataplane

import (
	"sync"
	"sync/atomic"
)

// queueGauge bounds what a handler holds for sending. Any goroutine.
type queueGauge struct {
	messages, bytes gauge

	waiting atomic.Bool // somebody has asked for room
	mu      sync.Mutex
	free    chan struct{} // closed when room came back; guarded by mu
}

type gauge struct {
	limit int64
	used  atomic.Int64
}

// take never shows more than it gets: an excess that is taken back would
// refuse others what fits, and nothing would tell them.
func (g *gauge) take(n int64) bool {
	for {
		used := g.used.Load()
		if g.limit > 0 && used > 0 && used+n > g.limit {
			return false
		}
		if g.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// take charges m, or says that there is no room. A message larger than the
// whole bound passes when nothing else is held.
func (q *queueGauge) take(m *Message) bool {
	n := int64(m.Size())
	if !q.reserve(n) {
		return false
	}
	m.charge = n
	return true
}

func (q *queueGauge) put(m *Message) { q.giveBack(m.charge) }

// reserve charges a message of n bytes.
func (q *queueGauge) reserve(n int64) bool {
	if !q.messages.take(1) {
		return false
	}
	if !q.bytes.take(n) {
		q.messages.used.Add(-1)
		return false
	}
	return true
}

func (q *queueGauge) giveBack(n int64) {
	// The number last: who has taken a number and finds no bytes then shows
	// it only while this one does, so that it refuses nobody who fits.
	q.bytes.used.Add(-n)
	q.messages.used.Add(-1)
	if q.waiting.Load() {
		q.wake()
	}
}

// room returns a channel that closes with the next put, or later.
func (q *queueGauge) room() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free == nil {
		q.free = make(chan struct{})
	}
	q.waiting.Store(true)
	return q.free
}

func (q *queueGauge) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free != nil {
		close(q.free)
		q.free = nil
	}
	q.waiting.Store(false)
}
