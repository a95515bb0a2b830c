package dataplane

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// modelQueue is the plainest form of an outQueue.
type modelQueue struct{ replay, queued []*Message }

func (q *modelQueue) next() int {
	best := -1
	for i, m := range q.queued {
		if best < 0 || effective(m) > effective(q.queued[best]) {
			best = i
		}
	}
	return best
}

func effective(m *Message) uint16 {
	if m.Priority == 0 {
		return PriorityDefault
	}
	return m.Priority
}

func (q *modelQueue) pop() *Message {
	if len(q.replay) > 0 {
		m := q.replay[0]
		q.replay = q.replay[1:]
		return m
	}
	i := q.next()
	if i < 0 {
		return nil
	}
	m := q.queued[i]
	q.queued = slices.Delete(q.queued, i, i+1)
	return m
}

// Matrix: SE-32, SE-34
func TestOutQueueOrdersLikeItsModel(t *testing.T) {
	priorities := []uint16{0, PriorityLow, PriorityDefault, PriorityHigh, PriorityHighest, 1, 65535}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var q outQueue
		var model modelQueue
		var sent messageList // what was popped and may come back
		var sentModel []*Message
		for step := range 1500 {
			switch r := rng.IntN(20); {
			case r < 9:
				p := priorities[rng.IntN(len(priorities))]
				if seed%2 == 1 {
					p = uint16(rng.Uint32() >> rng.IntN(16))
				}
				m := &Message{Priority: p, Front: make([]byte, rng.IntN(50))}
				q.push(m)
				model.queued = append(model.queued, m)
			case r < 18:
				peeked := q.peek()
				got, want := q.pop(), model.pop()
				if got != want || peeked != want {
					t.Fatalf("seed %d step %d: popped another message than the model", seed, step)
				}
				if got != nil {
					sent.push(got)
					sentModel = append(sentModel, got)
				}
			case r == 18 && seed%3 == 0 && len(model.queued) > 0: // withdrawn
				i := rng.IntN(len(model.queued))
				m := model.queued[i]
				model.queued = slices.Delete(model.queued, i, i+1)
				if !q.remove(m) || q.remove(m) {
					t.Fatalf("seed %d step %d: a queued message is removed not at all, or twice", seed, step)
				}
				if m.next != nil || m.prev != nil || m.class != (outClass{}) {
					t.Fatalf("seed %d step %d: a removed message takes part still", seed, step)
				}
				depth(t, q.root, 65535)
			case r < 19: // acknowledged
				if m := sent.pop(); m != nil {
					if m != sentModel[0] {
						t.Fatalf("seed %d step %d: sent list out of order", seed, step)
					}
					sentModel = sentModel[1:]
				}
			default: // a reconnect
				q.requeue(&sent)
				model.replay = append(sentModel, model.replay...)
				sentModel = nil
				if sent.n != 0 || sent.first != nil || sent.last != nil || sent.bytes != 0 {
					t.Fatalf("seed %d step %d: sent list not empty after requeue", seed, step)
				}
			}
			n, size := 0, 0
			for _, m := range append(slices.Clone(model.replay), model.queued...) {
				n++
				size += m.Size()
			}
			if q.n != n || q.bytes != int64(size) {
				t.Fatalf("seed %d step %d: %d messages of %d bytes, want %d of %d", seed, step, q.n, q.bytes, n, size)
			}
		}
	}
}

// depth is how many nodes there are on the longest way down, and checks the
// order on the way.
func depth(t *testing.T, m *Message, above uint16) int {
	if m == nil {
		return 0
	}
	c := &m.class
	if c.priority > above || c.last == nil || c.last.next != nil {
		t.Fatalf("class %d below %d, or its list is broken", c.priority, above)
	}
	if m.next != nil && m.next.class != (outClass{}) {
		t.Fatalf("class %d: its second message takes part in the tree", c.priority)
	}
	return 1 + max(depth(t, c.below[0], c.priority), depth(t, c.below[1], c.priority))
}

// Priorities are a peer's choice when its messages are passed on.
func TestAnyNumberOfPrioritiesLeavesAShortWalkAndTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	orders := map[string]func(i int) uint16{
		"rising":  func(i int) uint16 { return uint16(4 * i) },
		"falling": func(i int) uint16 { return uint16(65535 - 4*i) },
		"bits":    func(i int) uint16 { return uint16(1)<<(i%16) - uint16(i/16%2) },
		"random":  func(int) uint16 { return uint16(rng.Uint32()) },
	}
	const n = 1 << 14
	for name, order := range orders {
		var q outQueue
		for i := range 2 * n {
			q.push(&Message{Priority: order(i % n), TID: uint64(i)})
		}
		if d := depth(t, q.root, 65535); d > 17 {
			t.Errorf("%s: %d nodes on the way down", name, d)
		}
		listed := q.all(nil)
		var last *Message
		for i := range 2 * n {
			peeked := q.peek()
			m := q.pop()
			if m == nil || m != peeked || m != listed[i] || m.class != (outClass{}) || m.next != nil {
				t.Fatalf("%s: message %d is not the one peeked and listed, or takes part still", name, i)
			}
			if last != nil && (effective(m) > effective(last) || effective(m) == effective(last) && m.TID < last.TID) {
				t.Fatalf("%s: priority %d, message %d came behind priority %d, message %d", name, m.Priority, m.TID, last.Priority, last.TID)
			}
			last = m
			if i%2047 == 0 {
				depth(t, q.root, 65535)
			}
		}
		if q.pop() != nil || q.root != nil || q.n != 0 {
			t.Errorf("%s: %d messages left", name, q.n)
		}
	}
}
