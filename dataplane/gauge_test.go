package dataplane

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// charged wants the sending queue of h to hold so many messages, of size bytes together.
func charged(t testing.TB, h *Handler, messages, size int64) {
	t.Helper()
	if n, bytes := h.QueuedOut(); n != messages || bytes != size {
		t.Errorf("%d messages of %d bytes are charged, want %d of %d", n, bytes, messages, size)
	}
}

func sized(n int) *Message { return &Message{Data: make([]byte, n)} }

// Matrix: RL-07
func TestQueueBoundsMessagesAndBytes(t *testing.T) {
	for _, one := range []struct {
		name            string
		messages, bytes int64
		take            []int // sizes; negative: one of this size leaves
		refused         []int // the steps that find no room
	}{
		{"bytes", 0, 100, []int{40, 60, 1, -60, 1, 60, 59}, []int{2, 5}},
		{"messages", 3, 100, []int{40, 60, 1, -60, 1, 0, 0, -40, 0}, []int{2, 6}},
		{"a message beyond the whole bound passes alone", 0, 10, []int{1, 1000, -1, 1000, 1}, []int{1, 4}},
	} {
		var q queueGauge
		q.messages.limit, q.bytes.limit = one.messages, one.bytes
		n, size := int64(0), int64(0)
		for i, k := range one.take {
			switch refused := slices.Contains(one.refused, i); {
			case k < 0:
				q.release(int64(-k))
				n, size = n-1, size+int64(k)
			case q.take(sized(k)) == refused:
				t.Errorf("%s, step %d: refused: %v", one.name, i, !refused)
			case !refused:
				n, size = n+1, size+int64(k)
			}
			if q.messages.used.Load() != n || q.bytes.used.Load() != size {
				t.Errorf("%s, step %d: %d messages with %d bytes are charged, want %d with %d", one.name, i,
					q.messages.used.Load(), q.bytes.used.Load(), n, size)
			}
		}
	}
	var q queueGauge
	q.messages.limit, q.bytes.limit = 1, 10
	first, other := sized(10), sized(10)
	q.take(other)
	q.put(other)
	other.BoundElsewhere(true)
	if !q.take(first) || !q.take(other) || q.messages.used.Load() != 2 || q.bytes.used.Load() != 10 {
		t.Error("a message that is bound elsewhere is refused, or its bytes are charged, or it is not counted")
	}
	q.put(first)
	if q.put(other); q.messages.used.Load() != 0 || q.bytes.used.Load() != 0 {
		t.Error("something stays charged")
	}
}

func TestRoomIsNotLostBetweenAskingAndWaiting(t *testing.T) {
	var q queueGauge
	q.messages.limit = 1
	const senders, each = 4, 2500
	held := make(chan *Message, 1)
	var running sync.WaitGroup
	for range senders {
		running.Go(func() {
			for range each {
				m := sized(1)
				for {
					room := q.room()
					if q.take(m) {
						break
					}
					<-room
				}
				held <- m
			}
		})
	}
	for i := range senders * each {
		select {
		case m := <-held:
			q.put(m)
		case <-time.After(patience):
			t.Fatalf("stuck after %d messages", i)
		}
	}
	running.Wait()
	if q.messages.used.Load() != 0 || q.bytes.used.Load() != 0 {
		t.Error("something stays charged")
	}
}

// The other connection is its only hope, and gives its memory back once.
func TestNoReleaseIsMissedByASenderThatTheBudgetOfAllRefuses(t *testing.T) {
	total := NewSendBudget(1, 0)
	q, other := queueGauge{total: total}, queueGauge{total: total}
	var asks atomic.Int64
	for round := range int64(5000) {
		other.reserve(1)
		go func() {
			for asks.Load() == round {
				runtime.Gosched()
			}
			other.release(1)
		}()
		runtime.Gosched()
		room := q.room()
		asks.Store(round + 1)
		if !q.reserve(1) {
			select {
			case <-room:
			case <-time.After(patience):
				t.Fatalf("stuck in round %d", round)
			}
			q.reserve(1)
		}
		q.release(1)
	}
}

func TestARefusalLeavesNoTraceThatRefusesOthers(t *testing.T) {
	// What fits beside the held bytes must always pass, also while others ask for more than there is.
	total := NewSendBudget(1000, 60)
	if !(&queueGauge{total: total}).reserve(1000) {
		t.Fatal("refused")
	}
	for _, one := range []struct {
		by                    string
		total                 *SendBudget
		held, refused, passes int
	}{
		{"the queue", nil, 50, 60, 40},
		{"the budget of all", total, 20, 70, 40},
	} {
		var q queueGauge
		q.bytes.limit, q.messages.limit, q.total = 100, 100, one.total
		if !q.take(sized(one.held)) {
			t.Fatal("refused")
		}
		stop := make(chan struct{})
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if q.take(sized(one.refused)) {
							t.Errorf("%s: took more than there is", one.by)
							return
						}
					}
				}
			})
		}
		for range 20000 {
			m := sized(one.passes)
			if !q.take(m) {
				t.Errorf("refused because %s refuses another", one.by)
				break
			}
			q.put(m)
		}
		close(stop)
		running.Wait()
	}
}

// Matrix: RL-07
func TestSendersAtOnceTakeNoMoreThanTheShareOfTheirConnection(t *testing.T) {
	total := NewSendBudget(1000, 60)
	q, running := queueGauge{total: total}, sync.WaitGroup{}
	(&queueGauge{total: total}).reserve(1000)
	for range 2 {
		running.Go(func() {
			for range 50000 {
				if q.reserve(60) {
					if used := q.bytes.used.Load(); used > 60 {
						t.Errorf("%d bytes are held", used)
					}
					q.release(60)
				}
			}
		})
	}
	running.Wait()
}

func TestSendRefusesWithoutRoomAndRoomSaysWhenToTryAgain(t *testing.T) {
	c := newBed(t, nil).handler(HandlerConfig{QueueMessages: 2, QueueBytes: 1000})
	first := sized(10)
	must(t, c.h.Send(first))
	must(t, c.h.Send(sized(10)))
	room := c.h.Room()
	third := sized(10)
	if err := c.h.Send(third); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("message 3 of 2: %v", err)
	}
	if err := c.h.Send(first); !errors.Is(err, ErrInUse) {
		t.Fatalf("a message that is queued already: %v", err)
	}
	charged(t, c.h, 2, 20)
	select {
	case <-room:
		t.Fatal("room before anything left")
	default:
	}
	c.open(OpenOptions{Lossy: true})
	select {
	case <-room:
	default:
		t.Fatal("no word of the room that came back")
	}
	must(t, c.h.Send(third)) // the refused one is still the caller's
	c.settle()
	charged(t, c.h, 0, 0)
	room = c.h.Room()
	c.h.Refuse()
	select {
	case <-room:
	default:
		t.Fatal("a waiter is not told that the handler is dropped")
	}
	if err := c.h.Send(sized(1)); !errors.Is(err, ErrDropped) {
		t.Fatalf("send on a dropped handler: %v", err)
	}
}

// Compressed messages of many connections, a few bytes each on the wire, must not take more
// than the receive budget and one message together, whether they come whole or in pieces.
func TestCompressedMessagesOfManyConnectionsExceedTheBudgetByOneAtMost(t *testing.T) {
	const conns, limit, size = 8, 256 * kib, 200 * kib
	for _, mode := range wireModes {
		for _, piece := range []int{0, 70} {
			tc, th := budgetConns(t, 0, limit, 64*kib)
			for range conns {
				c := tc.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th, Share: 64 * kib}}, mode)
				c.h.rx.dec.Decompress(halves{})
				c.peer.enc.Compress(halves{}, 10)
				tc.add(c)
			}
			for i, c := range tc.conns {
				wire := c.peer.message(1, 0, &Message{TID: uint64(i), Data: make([]byte, size)})
				c.flow(wire[:piece])
				c.flow(wire[piece:])
				if most := int64(limit + size); th.Used() > most {
					t.Fatalf("%s, first piece of %d: %d bytes are held of %d", mode.name, piece, th.Used(), limit)
				}
			}
			if n := len(tc.order); n != 2 {
				t.Fatalf("%s, first piece of %d: %d messages, want 2 at first", mode.name, piece, n)
			}
			for len(tc.kept) > 0 {
				tc.release()
				if most := int64(limit + size); th.Used() > most {
					t.Fatalf("%s, first piece of %d: %d bytes are held of %d", mode.name, piece, th.Used(), limit)
				}
			}
			if len(tc.order) != conns || th.Used() != 0 || th.Waiting() != 0 {
				t.Errorf("%s, first piece of %d: dispatched %v, %d bytes held, %d wait", mode.name, piece, tc.order, th.Used(), th.Waiting())
			}
		}
	}
}

// A compressed message that waits for room moves to another core with its connection, and is
// dispatched there though nothing more comes from its peer.
func TestACompressedMessageThatWaitsForRoomChangesCores(t *testing.T) {
	for _, mode := range wireModes {
		a, b := twoBeds(t, nil)
		th := loop.NewThrottle(100 * kib)
		taken, full := (&loop.Throttles{Shared: th}).Acquire(&loop.Socket{}, 200*kib)
		if full != nil {
			t.Fatal("an empty budget is full")
		}
		c := a.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th, Share: 64 * kib}}, mode)
		c.h.rx.dec.Decompress(halves{})
		c.peer.enc.Compress(halves{}, 10)
		wire := c.peer.message(1, 0, &Message{TID: 7, Data: make([]byte, 50*kib)})
		c.flow(wire[:70])
		c.flow(wire[70:])
		if n := len(c.own.list()); n != 0 || th.Waiting() != 1 {
			t.Fatalf("%s: %d messages beyond the budget, %d wait", mode.name, n, th.Waiting())
		}
		c.leave(b)()
		c.settle()
		if n := len(c.own.list()); n != 0 || th.Waiting() != 1 {
			t.Fatalf("%s: %d messages beyond the budget on the other core, %d wait", mode.name, n, th.Waiting())
		}
		taken.Release()
		b.settle()
		if n := len(c.own.list()); n != 1 || c.own.fault() != nil || th.Used() != 0 {
			t.Errorf("%s: %d messages, %d bytes held, %v", mode.name, n, th.Used(), c.own.fault())
		}
	}
}
