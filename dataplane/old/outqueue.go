package dataplane

import (
	"slices"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"
)

// outQueue is what a handler has to send: replayed messages of an earlier
// connection first, in their old order, then the others, highest priority
// first and in the order of Send within a priority (msgr2.md 9.11). Owner: the
// handler's core.
type outQueue struct {
	replay  messageList
	classes []outClass // by falling priority; few, and kept up to maxIdle
	n       int
	bytes   int64
}

type outClass struct {
	priority uint16
	list     messageList
}

// maxIdle is how many classes are kept when they are empty. Priorities can be a
// peer's choice, as received messages can be passed on.
const maxIdle = 16

func (q *outQueue) push(m *Message) {
	p := m.Priority
	if p == 0 {
		p = PriorityDefault
	}
	q.class(p).push(m)
	q.n++
	q.bytes += int64(m.Size())
}

func (q *outQueue) class(p uint16) *messageList {
	i, found := q.find(p)
	if !found {
		if len(q.classes) >= maxIdle {
			q.classes = slices.DeleteFunc(q.classes, func(c outClass) bool { return c.list.first == nil })
			i, _ = q.find(p)
		}
		q.classes = slices.Insert(q.classes, i, outClass{priority: p})
	}
	return &q.classes[i].list
}

// find returns where the class of p is, or belongs.
func (q *outQueue) find(p uint16) (at int, found bool) {
	for at < len(q.classes) && q.classes[at].priority > p {
		at++
	}
	return at, at < len(q.classes) && q.classes[at].priority == p
}

// peek is the message that pop returns next.
func (q *outQueue) peek() *Message {
	if q.n == 0 {
		return nil
	}
	if q.replay.first != nil {
		return q.replay.first
	}
	for i := range q.classes {
		if m := q.classes[i].list.first; m != nil {
			return m
		}
	}
	return nil
}

func (q *outQueue) pop() *Message {
	if q.n == 0 {
		return nil
	}
	m := q.replay.pop()
	for i := 0; m == nil && i < len(q.classes); i++ {
		m = q.classes[i].list.pop()
	}
	q.n--
	q.bytes -= int64(m.Size())
	return m
}

// requeue puts the messages of an earlier connection before everything else
// and empties sent.
func (q *outQueue) requeue(sent *messageList) {
	for mutant.ReplayBehind && sent.n > 0 {
		q.push(sent.pop())
	}
	q.n += sent.n
	q.bytes += sent.bytes
	q.replay.prepend(sent)
}
