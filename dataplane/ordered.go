package dataplane

import "slices"

// Ordered puts numbered items back into their order. Items between two cores take more than
// one queue, so that a later item can come earlier. The sender numbers its items from 1, each
// number once, and the receiver has an Ordered. It gives item n+1 its turn after item n, and
// keeps items that come too early. The zero value waits for number 1. Only its owner, one at a
// time, touches it.
type Ordered[T any] struct {
	last  uint64 // that had its turn
	early []numbered[T]
}

type numbered[T any] struct {
	n    uint64
	item T
}

// Arrive says whether it is the turn of item n, which has had it then. If not,
// the queue keeps the item for Next.
func (q *Ordered[T]) Arrive(n uint64, item T) bool {
	if n != q.last+1 {
		q.early = append(q.early, numbered[T]{n, item})
		return false
	}
	q.last = n
	return true
}

// Next takes the item that is next in order, if it has come early.
func (q *Ordered[T]) Next() (item T, ok bool) {
	i := slices.IndexFunc(q.early, func(e numbered[T]) bool { return e.n == q.last+1 })
	if i < 0 {
		return item, false
	}
	item = q.early[i].item
	q.early = slices.Delete(q.early, i, i+1)
	q.last++
	return item, true
}

// pass has number n had its turn without an item.
func (q *Ordered[T]) pass(n uint64) { q.last = n }

// waiting is the number of items that came early.
func (q *Ordered[T]) waiting() int { return len(q.early) }
