package dataplane

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Throttle bounds something that received messages take up, bytes or their
// number, over all connections that share it. A connection that cannot take
// its share stops reading until others give back; the units return when the
// message is released, whatever its fate (msgr2.md 9.12).
//
// A limit of 0 means unlimited. A message larger than the whole limit passes
// alone, when nothing else is held. Whose turn has come vainTurns times in vain
// passes as soon as less than the limit is held, so that a large message, and
// those behind it, do not wait for ever while small ones pass: the limit is
// exceeded by one message at most. All methods may be called by any goroutine;
// only a full throttle takes a lock.
type Throttle struct {
	limit atomic.Int64
	used  atomic.Int64
	// waiting counts the connections in line, so that put need not lock to
	// see that nobody waits.
	waiting atomic.Int64

	mu   sync.Mutex
	line []waiter // guarded by mu
}

// waiter is a connection that waits for units.
type waiter struct {
	core *Core
	task *task
}

// NewThrottle makes a throttle; limit <= 0 means unlimited.
func NewThrottle(limit int64) *Throttle {
	t := &Throttle{}
	t.SetLimit(limit)
	return t
}

// SetLimit changes the limit for what is taken from now on. What is held above
// it drains by itself.
func (t *Throttle) SetLimit(limit int64) {
	t.limit.Store(max(limit, 0))
	t.notify()
}

// Limit is the bound, 0 for none.
func (t *Throttle) Limit() int64 { return t.limit.Load() }

// Used is what is held now.
func (t *Throttle) Used() int64 { return t.used.Load() }

// Waiting is the number of connections that do not read because of t.
func (t *Throttle) Waiting() int64 { return t.waiting.Load() }

// vainTurns is how often a connection that waits lets others pass.
const vainTurns = 16

// fits says whether n units can be taken when used are held, by one that was so
// often at the head of the line in vain.
func (t *Throttle) fits(used, n int64, vain int) bool {
	limit := t.limit.Load()
	return limit == 0 || used == 0 || used+n <= limit || vain >= vainTurns && used < limit
}

// take takes n units, or says that the caller has to wait.
func (t *Throttle) take(n int64, vain int) bool {
	for {
		used := t.used.Load()
		if !t.fits(used, n, vain) {
			return false
		}
		if t.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (t *Throttle) put(n int64) {
	t.used.Add(-n)
	if t.waiting.Load() > 0 {
		t.notify()
	}
}

// wait puts a connection that needs n units in line, at its head if it has
// been there before: when units return, w.task runs on its core.
func (t *Throttle) wait(w waiter, n int64, again bool, vain int) {
	t.mu.Lock()
	if again {
		t.line = slices.Insert(t.line, 0, w)
	} else {
		t.line = append(t.line, w)
	}
	t.waiting.Add(1)
	t.mu.Unlock()
	// Units may have come back between the failed take and now.
	if t.fits(t.used.Load(), n, vain) {
		t.notify()
	}
}

// leave takes a connection that has ended out of the line. It returns false if
// it is not there: then its turn has come already, and it has to pass it on.
func (t *Throttle) leave(k *task) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.line {
		if t.line[i].task == k {
			t.line = slices.Delete(t.line, i, i+1)
			t.waiting.Add(-1)
			return true
		}
	}
	return false
}

// notify wakes the first in line. It tries again, and if it gets its share,
// or is gone, it calls notify for the next: one return never wakes a crowd.
func (t *Throttle) notify() {
	t.mu.Lock()
	if len(t.line) == 0 {
		t.mu.Unlock()
		return
	}
	w := t.line[0]
	t.line = slices.Delete(t.line, 0, 1)
	t.waiting.Add(-1)
	t.mu.Unlock()
	w.core.post(w.task)
}

// Throttles are those that apply to the messages of a connection; nil ones
// do not.
type Throttles struct {
	Messages *Throttle // number of messages, of the connection's policy
	Bytes    *Throttle // payload bytes, of the connection's policy
	Dispatch *Throttle // payload bytes, MinDispatchShare at least, of the whole messenger
}

// MinDispatchShare is what a message takes of Throttles.Dispatch, in bytes, if
// it has less payload: its bookkeeping, so that messages without payload are
// bounded, too.
const MinDispatchShare = 256

func dispatchShare(bytes int64) int64 { return max(bytes, MinDispatchShare) }

// throttled is what one message holds.
type throttled struct {
	from  *Throttles
	bytes int64
}

// take takes a message's share of all throttles, or of none: then it returns
// the one that is full. The order is that of the protocol text: messages,
// bytes, dispatch.
func (t *Throttles) take(bytes int64, vain int) (throttled, *Throttle) {
	if t == nil || (t.Messages == nil && t.Bytes == nil && t.Dispatch == nil) {
		return throttled{}, nil
	}
	if t.Messages != nil && !t.Messages.take(1, vain) {
		return throttled{}, t.Messages
	}
	if t.Bytes != nil && !t.Bytes.take(bytes, vain) {
		if t.Messages != nil {
			t.Messages.put(1)
		}
		return throttled{}, t.Bytes
	}
	if t.Dispatch != nil && !t.Dispatch.take(dispatchShare(bytes), vain) {
		if t.Messages != nil {
			t.Messages.put(1)
		}
		if t.Bytes != nil {
			t.Bytes.put(bytes)
		}
		return throttled{}, t.Dispatch
	}
	return throttled{from: t, bytes: bytes}, nil
}

// units is what one message of so many bytes takes of full.
func (t *Throttles) units(full *Throttle, bytes int64) int64 {
	switch full {
	case t.Messages:
		return 1
	case t.Dispatch:
		return dispatchShare(bytes)
	default:
		return bytes
	}
}

// raise makes the share as large as bytes, over the limits if need be: the
// message is there already, and the next ones wait for it to go.
func (h *throttled) raise(bytes int64) {
	t, before := h.from, h.bytes
	if t == nil || bytes <= before {
		return
	}
	h.bytes = bytes
	if t.Dispatch != nil {
		t.Dispatch.used.Add(dispatchShare(bytes) - dispatchShare(before))
	}
	if t.Bytes != nil {
		t.Bytes.used.Add(bytes - before)
	}
}

// giveBack returns what was taken, once.
func (h *throttled) giveBack() {
	t := h.from
	if t == nil {
		return
	}
	h.from = nil
	if t.Dispatch != nil {
		t.Dispatch.put(dispatchShare(h.bytes))
	}
	if t.Bytes != nil {
		t.Bytes.put(h.bytes)
	}
	if t.Messages != nil {
		t.Messages.put(1)
	}
}
