package dataplane

import (
	"cmp"
	"slices"
)

// outQueue has the messages to send of a handler: first the replayed messages of an earlier
// connection, in their old order, then the others, highest priority first and in the order of
// Send within a priority (Ceph's ProtocolV2.cc). Owner: the handler's core.
//
// The messages of one priority are a class, a linked list. The first message of
// each class is a node of a binary tree in which no class stands below one of a
// lower priority, so that the next message to send is in the root. Below a node
// at depth d the classes part by bit 15-d of their priority. So the tree is at most 17 nodes
// deep for any priorities: they can be a peer's choice, as received messages can be sent on.
// Lists and tree are made of the messages themselves: the queue has no memory of its own.
type outQueue struct {
	replay messageList
	root   *Message // first of the highest class
	n      int
	bytes  int64
}

// outClass is the state of a class, in its first message. It is zero in all other messages.
type outClass struct {
	priority uint16
	last     *Message
	below    [2]*Message // first of other classes, by the bit of this depth
}

// topBit parts the classes below the root.
const topBit = 15

// side is the side of a node at the depth of bit to which p belongs.
func side(p uint16, bit int) int { return int(p>>bit) & 1 }

// effectivePriority is the priority by which m is queued.
func (m *Message) effectivePriority() uint16 {
	if m.Priority == 0 {
		return PriorityDefault
	}
	return m.Priority
}

func (q *outQueue) push(m *Message) {
	p := m.effectivePriority()
	q.n++
	q.bytes += int64(m.Size())
	m.next, m.prev = nil, nil
	at := &q.root
	for bit := topBit; *at != nil; bit-- {
		c := &(*at).class
		if c.priority == p {
			c.last.next, m.prev = m, c.last
			c.last = m
			return
		}
		if c.priority < p {
			// m takes this place, and the message that was here goes down
			// the tree.
			m.lead(p)
			m.class.below, c.below = c.below, [2]*Message{}
			*at, m, p = m, *at, c.priority
			c = &(*at).class
		}
		at = &c.below[side(p, bit)]
	}
	m.lead(p)
	*at = m
}

// lead makes m the first message of its class, unless it is that already.
func (m *Message) lead(p uint16) {
	if m.class.last == nil {
		m.class = outClass{priority: p, last: m}
	}
}

// peek is the message that pop returns next.
func (q *outQueue) peek() *Message {
	if q.replay.first != nil {
		return q.replay.first
	}
	return q.root
}

func (q *outQueue) pop() *Message {
	m := q.replay.pop()
	if m == nil {
		m = q.popRoot()
	}
	if m != nil {
		q.n--
		q.bytes -= int64(m.Size())
	}
	return m
}

func (q *outQueue) popRoot() *Message {
	m := q.root
	if m == nil {
		return nil
	}
	q.root = m.behind()
	m.next, m.class = nil, outClass{}
	return m
}

// behind is the message that takes the place of m, the first message of its class, in the tree.
func (m *Message) behind() *Message {
	next := m.next
	if next == nil {
		return rise(m.class.below)
	}
	next.class, next.prev = m.class, nil
	return next
}

// remove takes out a message that was pushed and not popped since. It returns false
// if the message is not there.
func (q *outQueue) remove(m *Message) bool {
	p, at := m.effectivePriority(), &q.root
	for bit := topBit; *at != nil && (*at).class.priority != p; bit-- {
		at = &(*at).class.below[side(p, bit)]
	}
	switch first := *at; {
	case first == nil:
		return false
	case m == first:
		*at = m.behind()
	case m.prev == nil:
		return false // it was popped
	default:
		m.prev.next = m.next
		if m.next != nil {
			m.next.prev = m.prev
		} else {
			first.class.last = m.prev
		}
	}
	m.next, m.prev, m.class = nil, nil, outClass{}
	q.n--
	q.bytes -= int64(m.Size())
	return true
}

// rise makes one tree of the two sides below a removed node, and returns its root. All classes
// of side 1 are above those of side 0.
func rise(below [2]*Message) (root *Message) {
	at := &root
	for {
		up := 1
		if below[1] == nil {
			up = 0
		}
		m := below[up]
		if m == nil {
			return root
		}
		*at = m
		m.class.below, below = below, m.class.below
		at = &m.class.below[up]
		*at = nil
	}
}

// all appends the messages after the replayed ones to to, in the order of pop.
func (q *outQueue) all(to []*Message) []*Message {
	var classes []*Message
	if q.root != nil {
		classes = append(classes, q.root)
	}
	for i := 0; i < len(classes); i++ {
		for _, m := range classes[i].class.below {
			if m != nil {
				classes = append(classes, m)
			}
		}
	}
	slices.SortFunc(classes, func(a, b *Message) int { return cmp.Compare(b.class.priority, a.class.priority) })
	for _, m := range classes {
		for ; m != nil; m = m.next {
			to = append(to, m)
		}
	}
	return to
}

// requeue puts the messages of an earlier connection before everything else
// and empties sent.
func (q *outQueue) requeue(sent *messageList) {
	q.n += sent.n
	q.bytes += sent.bytes
	q.replay.prepend(sent)
}
