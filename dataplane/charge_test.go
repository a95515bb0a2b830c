package dataplane

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// limited is a connection that counts against throttles of each kind, and against a sending budget.
type limited struct {
	*conn
	messages, bytes, dispatch *loop.Throttle
	send                      *SendBudget
}

func newLimited(t *testing.T, lossy bool, messages, bytes int64) *limited {
	l := &limited{messages: loop.NewThrottle(messages), bytes: loop.NewThrottle(bytes),
		dispatch: loop.NewThrottle(bytes), send: NewSendBudget(1<<30, 0)}
	l.conn = newBed(t, nil).handler(HandlerConfig{Budget: l.send})
	l.own.discard = true
	l.open(OpenOptions{Lossy: lossy, Throttles: &loop.Throttles{Frames: l.messages, Bytes: l.bytes,
		Shared: l.dispatch}})
	return l
}

// held is how many messages of size bytes are counted by all throttles alike, -1 if
// they differ.
func (l *limited) held(size int64) int64 {
	n := l.messages.Used()
	if l.bytes.Used() != n*size || l.dispatch.Used() != n*size {
		return -1
	}
	return n
}

// A received message counts in its dispatch near the limits, and elsewhere if it is kept: against
// the sending budget while it is in a sending queue, else against the throttles.
func TestWhereAReceivedMessageCounts(t *testing.T) {
	for i := range 8 {
		size, lossy := []int64{1000, 5000}[i%2], i/2%2 == 0 // a write copies the first, and refers to the second
		messages, bytes, during := int64(1<<20), int64(1<<30), int64(0)
		if i/4 == 1 {
			messages, bytes, during = 3, 5*size, 1
		}
		for _, one := range []struct {
			name       string
			do         func(h *Handler, m *Message)
			sent, kept int64
		}{
			{"not kept", func(*Handler, *Message) {}, 0, 0},
			{"released", func(_ *Handler, m *Message) { m.Retain(); m.Release() }, 0, 0},
			{"kept", func(_ *Handler, m *Message) { m.Retain() }, 0, 1},
			{"kept twice", func(_ *Handler, m *Message) { m.Retain(); m.Retain() }, 0, 1},
			{"sent", func(h *Handler, m *Message) { m.Retain(); must(t, h.Send(m)) }, 1, 0},
			{"sent and kept", func(h *Handler, m *Message) { m.Retain(); m.Retain(); must(t, h.Send(m)) }, 1, 1},
			{"a clone is sent", func(h *Handler, m *Message) { must(t, h.Send(m.Clone())) }, 1, 0},
			{"a clone is sent, and it is kept", func(h *Handler, m *Message) {
				must(t, h.Send(m.Clone()))
				m.Retain()
			}, 1, 1},
			{"a clone of a clone is sent, and it is kept", func(h *Handler, m *Message) {
				c := m.Clone()
				must(t, h.Send(c.Clone()))
				c.Release()
				m.Retain()
			}, 1, 1},
		} {
			where := fmt.Sprintf("%s, %d bytes, lossy %v, of %d", one.name, size, lossy, bytes)
			l := newLimited(t, lossy, messages, bytes)
			var m *Message
			l.own.onMessage = func(h *Handler, got *Message) {
				if n := l.held(size); n != during {
					t.Errorf("%s: %d messages count in the dispatch, want %d", where, n, during)
				}
				m = got
				one.do(h, got)
				if n, sent := l.held(size), l.send.Used(); one.sent > 0 && n != 0 || sent != one.sent*size {
					t.Errorf("%s: queued, %d messages count as received, %d bytes as sent", where, n, sent)
				}
			}
			l.arrive(l.peer.message(1, 0, &Message{Front: make([]byte, size)}))
			if !lossy {
				if n := l.send.Used(); n != one.sent*size {
					t.Errorf("%s: without an ack %d bytes count as sent", where, n)
				}
				l.arrive(l.peer.ack(1))
			}
			if n := l.held(size); n != one.kept || l.send.Used() != 0 {
				t.Errorf("%s: %d messages count behind the dispatch, want %d; %d bytes as sent", where, n, one.kept,
					l.send.Used())
			}
			for one.kept > 0 && m.refs.Load() >= 0 {
				m.Release()
			}
			l.settle()
			if n, mem := l.held(size), l.c.Snapshot().PoolInUse; n != 0 || mem != 0 {
				t.Errorf("%s: %d messages count at the end, %d bytes are in use", where, n, mem)
			}
		}
	}
}

// A send on another goroutine may begin while the message is counted again.
func TestAMessageThatIsQueuedWhileItIsCountedAgainCountsAsSent(t *testing.T) {
	l := newLimited(t, true, 1<<20, 1<<30)
	var m *Message
	l.own.onMessage = func(_ *Handler, got *Message) { m = got; m.Retain(); m.Retain() } // for us, and for the queue
	l.arrive(l.peer.message(1, 0, &Message{Front: make([]byte, 1000)}))
	for _, step := range []struct {
		name string
		do   func()
		held int64
	}{
		{"kept", func() {}, 1}, {"queued", m.queue, 0}, {"counted again", m.recharge, 0}, {"sent", func() { m.dequeue(); m.Release() }, 1}, {"released", m.Release, 0},
	} {
		if step.do(); l.held(1000) != step.held {
			t.Errorf("%s: %d messages count, want %d", step.name, l.held(1000), step.held)
		}
	}
	l.settle()
}

// What is held never exceeds a limit because a message is counted late, however
// close it is.
func TestALimitThatCoresTogetherCouldExceedIsCountedBeforeTheDispatch(t *testing.T) {
	const limit = 1 << 20
	l := newLimited(t, true, 0, limit)
	var kept []*Message
	l.own.onMessage = func(_ *Handler, m *Message) {
		const most = 1024 // cores
		if early := int64(len(kept))*1000+most*1000 > limit; early != (l.bytes.Used() > int64(len(kept))*1000) {
			t.Fatalf("message %d counts before its dispatch: %v, want %v", len(kept), !early, early)
		}
		m.Retain()
		kept = append(kept, m)
	}
	for seq := range 2000 {
		l.sock.Arrive(l.peer.message(uint64(seq+1), 0, &Message{Front: make([]byte, 1000)}))
	}
	l.settle()
	if len(kept) != limit/1000 || l.dispatch.Used() != int64(len(kept))*1000 {
		t.Errorf("%d messages, %d bytes", len(kept), l.dispatch.Used())
	}
	for _, m := range kept {
		m.Release()
	}
}

// Others release and send a message while its dispatch still runs, or just behind
// it.
func TestOthersGiveBackAMessageThatIsCountedBehindItsDispatch(t *testing.T) {
	const total = 3000
	for _, size := range []int64{300, 3000} {
		othersGiveBack(t, total, size)
	}
}

func othersGiveBack(t *testing.T, total int, size int64) {
	l := newLimited(t, true, 1<<20, 1<<30)
	free, sent := make(chan *Message, total), make(chan *Message, total)
	var all sync.WaitGroup
	all.Go(func() {
		for m := range free {
			m.Release()
		}
	})
	all.Go(func() {
		for m := range sent {
			must(t, l.h.Send(m))
		}
	})
	n := 0
	l.own.onMessage = func(h *Handler, m *Message) {
		if n++; n%3 != 0 {
			m.Retain()
			free <- m
		}
		if n%3 != 1 {
			m.Retain()
			sent <- m
		}
	}
	for seq := range total {
		l.sock.Arrive(l.peer.message(uint64(seq+1), 0, &Message{Front: make([]byte, size)}))
		if seq%10 == 0 {
			l.settle()
		}
	}
	l.settle()
	close(free)
	close(sent)
	all.Wait()
	l.settle()
	if held, mem := l.held(size), l.c.Snapshot().PoolInUse; n != total || held != 0 || mem != 0 {
		t.Errorf("%d messages came, %d count at the end, %d bytes are in use", n, held, mem)
	}
	if got := len(l.take()); got != total-total/3 {
		t.Errorf("%d answers", got)
	}
}

// What a write has taken is off the queue once somebody can look.
func TestWhatOneWriteTakesLeavesTheQueueBeforeAnybodyIsTold(t *testing.T) {
	c := newBed(t, nil).handler(HandlerConfig{Budget: NewSendBudget(1<<20, 0)})
	c.own.discard = true
	c.open(OpenOptions{Lossy: true})
	var own *Message
	c.own.onMessage = func(h *Handler, m *Message) {
		m.Retain()
		must(t, h.Send(m))
		if m.Seq() == 5 {
			own = NewMessage(1, nil, nil)
			own.Free = func(*Message) {
				if n, bytes := h.QueuedOut(); n != 5 || bytes != 500 {
					t.Errorf("%d messages and %d bytes are queued behind the sixth, want the five that follow", n, bytes)
				}
			}
			must(t, h.Send(own))
		}
	}
	var stream []byte
	for seq := range 10 {
		stream = append(stream, c.peer.message(uint64(seq+1), 0, &Message{Front: make([]byte, 100)})...)
	}
	c.arrive(stream)
	if n, bytes := c.h.QueuedOut(); own == nil || n != 0 || bytes != 0 || c.h.held.total.Used() != 0 {
		t.Errorf("%d messages and %d bytes are queued, %d count", n, bytes, c.h.held.total.Used())
	}
	if got := len(c.take()); got != 11 {
		t.Errorf("%d frames", got)
	}
}
