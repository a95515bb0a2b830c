package dataplane

import (
	"cmp"
	"slices"
)

// outQueue has the messages to send of a handler: first the replayed messages of an earlier
// connection, in their old order, then the others, highest priority first and in the order of
// Send within a priority (Ceph's ProtocolV2.cc). Owner: the handler's core.
//
// The messages of one priority are a class, a linked list of the messages themselves. The classes
// are sorted, so that any number of priorities leaves a short search: they can be a peer's choice,
// as received messages can be sent on. The worst of these moves 512 KiB for a new class, which
// takes 10 us.
type outQueue struct {
	replay  messageList
	classes []*Message // the first message of each class, by rising priority
	n       int
	bytes   int64
}

// keptClasses is the number of classes for which an empty queue keeps memory.
const keptClasses = 64

// effectivePriority is the priority by which m is queued.
func (m *Message) effectivePriority() uint16 {
	if m.Priority == 0 {
		return PriorityDefault
	}
	return m.Priority
}

// class is the index of the class of a priority, or where it belongs.
func (q *outQueue) class(priority uint16) (i int, found bool) {
	return slices.BinarySearchFunc(q.classes, priority, func(first *Message, p uint16) int {
		return cmp.Compare(first.effectivePriority(), p)
	})
}

func (q *outQueue) push(m *Message) {
	q.n++
	q.bytes += int64(m.Size())
	m.next, m.prev, m.last = nil, nil, nil
	i, found := q.class(m.effectivePriority())
	if !found {
		m.last = m
		q.classes = slices.Insert(q.classes, i, m)
		return
	}
	first := q.classes[i]
	m.prev, first.last.next = first.last, m
	first.last = m
}

// peek is the message that pop returns next.
func (q *outQueue) peek() *Message {
	if q.replay.first != nil {
		return q.replay.first
	}
	if n := len(q.classes); n > 0 {
		return q.classes[n-1]
	}
	return nil
}

func (q *outQueue) pop() *Message {
	m := q.replay.pop()
	if n := len(q.classes); m == nil && n > 0 {
		m = q.classes[n-1]
		q.shift(n - 1)
	}
	if m != nil {
		q.left(m)
	}
	return m
}

// shift takes the first message out of class i.
func (q *outQueue) shift(i int) {
	first := q.classes[i]
	if next := first.next; next != nil {
		next.prev, next.last = nil, first.last
		q.classes[i] = next
		return
	}
	if q.classes = slices.Delete(q.classes, i, i+1); len(q.classes) == 0 && cap(q.classes) > keptClasses {
		q.classes = nil
	}
}

// left notes that m is in the queue no more.
func (q *outQueue) left(m *Message) {
	m.next, m.prev, m.last = nil, nil, nil
	q.n--
	q.bytes -= int64(m.Size())
}

// remove takes out a message that was pushed and not popped since. It returns false
// if the message is not there.
func (q *outQueue) remove(m *Message) bool {
	i, found := q.class(m.effectivePriority())
	switch {
	case found && m == q.classes[i]:
		q.shift(i)
	case !found || m.prev == nil:
		return false // it was popped
	default:
		m.prev.next = m.next
		if m.next != nil {
			m.next.prev = m.prev
		} else {
			q.classes[i].last = m.prev
		}
	}
	q.left(m)
	return true
}

// all are the messages after the replayed ones, in the order of pop.
func (q *outQueue) all() (list []*Message) {
	for _, m := range slices.Backward(q.classes) {
		for ; m != nil; m = m.next {
			list = append(list, m)
		}
	}
	return list
}

// requeue puts the messages of an earlier connection before everything else
// and empties sent.
func (q *outQueue) requeue(sent *messageList) {
	q.n += sent.n
	q.bytes += sent.bytes
	q.replay.prepend(sent)
}
