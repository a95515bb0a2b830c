package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"

// outQueue is what a handler has to send: replayed messages of an earlier
// connection first, in their old order, then the others, highest priority
// first and in the order of Send within a priority (msgr2.md 9.11). Owner: the
// handler's core.
type outQueue struct {
	replay  messageList
	classes []outClass // by falling priority; few, and kept once made
	n       int
	bytes   int64
}

type outClass struct {
	priority uint16
	list     messageList
}

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
	i := 0
	for ; i < len(q.classes) && q.classes[i].priority >= p; i++ {
		if q.classes[i].priority == p {
			return &q.classes[i].list
		}
	}
	q.classes = append(q.classes, outClass{})
	copy(q.classes[i+1:], q.classes[i:])
	q.classes[i] = outClass{priority: p}
	return &q.classes[i].list
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
