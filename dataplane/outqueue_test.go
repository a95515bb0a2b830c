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
				m := &Message{Priority: priorities[rng.IntN(len(priorities))], Front: make([]byte, rng.IntN(50))}
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

func TestReplayGoesAheadOfEveryPriority(t *testing.T) {
	var q outQueue
	var sent messageList
	old := []*Message{{TID: 1, Priority: PriorityLow}, {TID: 2, Priority: PriorityLow}}
	for _, m := range old {
		sent.push(m)
	}
	q.push(&Message{TID: 4, Priority: PriorityDefault})
	q.push(&Message{TID: 3, Priority: PriorityHighest})
	q.requeue(&sent)
	for want := uint64(1); want <= 4; want++ {
		if m := q.pop(); m.TID != want {
			t.Fatalf("message %d came, want %d", m.TID, want)
		}
	}
	if q.pop() != nil || q.peek() != nil {
		t.Error("an empty queue yields a message")
	}
}

// Priorities are a peer's choice when its messages are passed on.
func TestAnyNumberOfPrioritiesLeavesFewClasses(t *testing.T) {
	var q outQueue
	for p := range 1000 {
		for _, priority := range []uint16{uint16(p + 1), PriorityDefault} {
			q.push(&Message{Priority: priority})
		}
		q.pop()
		q.pop()
		if n := len(q.classes); n > maxIdle {
			t.Fatalf("%d classes behind %d priorities", n, p+1)
		}
	}
	for _, p := range []uint16{5, 900, 70, 900, 5} {
		q.push(&Message{Priority: p})
	}
	for _, want := range []uint16{900, 900, 70, 5, 5} {
		if m := q.peek(); m.Priority != want || q.pop() != m {
			t.Fatalf("priority %d, want %d", m.Priority, want)
		}
	}
}
