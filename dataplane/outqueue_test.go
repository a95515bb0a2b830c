package dataplane

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// modelQueue is the plainest form of an outQueue.
type modelQueue struct{ replay, queued []*Message }

func (q *modelQueue) pop() *Message {
	list := &q.replay
	best := 0
	if len(q.replay) == 0 {
		list = &q.queued
		for i, m := range q.queued {
			if m.effectivePriority() > q.queued[best].effectivePriority() {
				best = i
			}
		}
	}
	if len(*list) == 0 {
		return nil
	}
	m := (*list)[best]
	*list = slices.Delete(*list, best, best+1)
	return m
}

// alone says that a message that has left a queue takes no part in it.
func alone(m *Message) bool { return m.next == nil && m.prev == nil && m.last == nil }

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
					if !alone(got) || q.remove(got) {
						t.Fatalf("seed %d step %d: a popped message takes part still", seed, step)
					}
					sent.push(got)
					sentModel = append(sentModel, got)
				}
			case r == 18 && seed%3 == 0 && len(model.queued) > 0: // withdrawn
				i := rng.IntN(len(model.queued))
				m := model.queued[i]
				model.queued = slices.Delete(model.queued, i, i+1)
				if !q.remove(m) || q.remove(m) || !alone(m) {
					t.Fatalf("seed %d step %d: a queued message is removed not just once, or takes part still", seed, step)
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
				for l, want := range map[*messageList][]*Message{&sent: sentModel, &q.replay: model.replay} {
					at := messageList{first: l.first, n: len(want)}
					for _, at.last = range want {
						at.bytes += int64(at.last.Size())
					}
					if *l != at || !slices.Equal(l.all(), want) {
						t.Fatalf("seed %d step %d: a list is %+v, want %+v", seed, step, *l, at)
					}
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

// Priorities are a peer's choice when its messages are passed on: each may have a class.
func TestEveryPriorityMayHaveItsClass(t *testing.T) {
	const n = 1 << 16
	var q outQueue
	for i := range 2 * n {
		q.push(&Message{Priority: uint16(40503 * i), TID: uint64(i)}) // each twice
	}
	listed := q.all()
	for i := range 2 * n {
		if m := q.pop(); m == nil || m != listed[i] || !alone(m) {
			t.Fatalf("message %d is not the one listed, or takes part still", i)
		} else if last := listed[max(i, 1)-1]; m.effectivePriority() > last.effectivePriority() ||
			m.effectivePriority() == last.effectivePriority() && m.TID < last.TID {
			t.Fatalf("priority %d, message %d behind priority %d, message %d", m.Priority, m.TID, last.Priority, last.TID)
		}
	}
	if q.pop() != nil || q.n != 0 || q.classes != nil {
		t.Errorf("%d messages left, memory for %d classes", q.n, cap(q.classes))
	}
}
