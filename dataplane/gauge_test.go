package dataplane

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

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
}

func TestRoomIsNotLostBetweenAskingAndWaiting(t *testing.T) {
	var q queueGauge
	q.messages.limit = 1
	const senders, each = 4, 2500
	held := make(chan *Message, 1)
	var running sync.WaitGroup
	for range senders {
		running.Add(1)
		go func() {
			defer running.Done()
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
		}()
	}
	limit := time.After(patience)
	for i := range senders * each {
		select {
		case m := <-held:
			q.put(m)
		case <-limit:
			t.Fatalf("stuck after %d messages", i)
		}
	}
	running.Wait()
	if q.messages.used.Load() != 0 || q.bytes.used.Load() != 0 {
		t.Error("something stays charged")
	}
}

func TestARefusalLeavesNoTraceThatRefusesOthers(t *testing.T) {
	// Half of the bound is held: what fits beside it must always pass, also
	// while others ask for more than there is.
	var q queueGauge
	q.bytes.limit, q.messages.limit = 100, 100
	if !q.take(sized(50)) {
		t.Fatal("refused")
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range 2 {
		running.Add(1)
		go func() {
			defer running.Done()
			for {
				select {
				case <-stop:
					return
				default:
					if q.take(sized(60)) {
						t.Error("took 110 of 100 bytes")
						return
					}
				}
			}
		}()
	}
	for range 20000 {
		m := sized(40)
		if !q.take(m) {
			t.Error("refused 90 of 100 bytes because another was refused")
			break
		}
		q.put(m)
	}
	close(stop)
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
	if n, size := c.h.QueuedOut(); n != 2 || size != 20 {
		t.Fatalf("%d messages of %d bytes are held, want 2 of 20", n, size)
	}
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
	if n, size := c.h.QueuedOut(); n != 0 || size != 0 {
		t.Fatalf("%d messages of %d bytes are held after all left", n, size)
	}
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
