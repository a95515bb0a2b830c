package dataplane

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// throttledConns are connections of one core that share throttles; every
// message is kept until it is released.
type throttledConns struct {
	*bed
	conns []*conn
	kept  []*Message
	order []uint64 // TIDs in the order of dispatch
}

func newThrottledConns(t *testing.T, n int, ts *loop.Throttles) *throttledConns {
	tc := &throttledConns{bed: newBed(t, nil)}
	for range n {
		tc.add(tc.conn(OpenOptions{Throttles: ts}))
	}
	return tc
}

func (tc *throttledConns) add(c *conn) {
	c.own.onMessage = func(_ *Handler, m *Message) {
		m.Retain()
		tc.kept, tc.order = append(tc.kept, m), append(tc.order, m.TID)
	}
	tc.conns = append(tc.conns, c)
}

// release gives back the oldest message.
func (tc *throttledConns) release() {
	m := tc.kept[0]
	tc.kept = tc.kept[1:]
	m.Release()
	tc.settle()
}

// arrival is a message for one of several connections.
type arrival struct {
	conn int
	tid  uint64
	size int // front, middle and data together
}

// Matrix: TH-01, TH-02, TH-04
func TestConnectionsWaitInLineForAThrottle(t *testing.T) {
	for _, one := range []struct {
		name   string
		frames bool // it counts messages, else bytes
		limit  int64
		come   []arrival
		closed []int      // connections that end before the first release
		order  [][]uint64 // the messages that come, at first and with each release of the oldest one
	}{
		{"messages count", true, 3, []arrival{{0, 1, 60}, {0, 2, 60}, {0, 3, 60}, {0, 4, 60}, {0, 5, 60}}, nil,
			[][]uint64{{1, 2, 3}, {4}, {5}, {}}},
		{"bytes count", false, 600, []arrival{{0, 1, 600}, {0, 2, 1}}, nil, [][]uint64{{1}, {2}}},
		{"a large message is not passed", false, 100, []arrival{{0, 1, 10}, {1, 10, 96}, {0, 2, 10}, {0, 3, 10}}, nil,
			[][]uint64{{1}, {10}, {2, 3}}},
		{"one that was woken in vain keeps its place", false, 100, []arrival{{0, 1, 50}, {0, 2, 50}, {1, 3, 90}, {2,
			4, 90}}, nil, [][]uint64{{1, 2}, {}, {3}, {4}}},
		{"the next one hears of what the first leaves", false, 100, []arrival{{0, 1, 100}, {1, 2, 40}, {1, 3, 90}, {2,
			4, 10}}, nil, [][]uint64{{1}, {2, 4}, {3}, {}}},
		{"one release has room for several", false, 100, []arrival{{0, 1, 100}, {1, 2, 40}, {2, 3, 40}}, nil, [][]uint64{{1},
			{2, 3}}},
		{"the end of those in line passes the wake-up on", true, 1, []arrival{{0, 1, 6}, {1, 2, 6}, {2, 3, 6}, {3, 4,
			6}}, []int{1, 2}, [][]uint64{{1}, {4}}},
	} {
		t.Run(one.name, func(t *testing.T) {
			th, ts := loop.NewThrottle(one.limit), &loop.Throttles{}
			if ts.Bytes = th; one.frames {
				ts.Bytes, ts.Frames = nil, th
			}
			tc, seqs := newThrottledConns(t, 4, ts), [4]uint64{}
			for _, a := range one.come {
				c := tc.conns[a.conn]
				seqs[a.conn]++
				c.sock.Arrive(c.peer.message(seqs[a.conn], 0, &Message{
					TID: a.tid, Front: make([]byte, a.size/6), Middle: make([]byte, a.size/3), Data: make([]byte,
						a.size-a.size/6-a.size/3)}))
				tc.settle()
			}
			for _, i := range one.closed {
				tc.conns[i].closeHandler()
			}
			var want []uint64
			for i, more := range one.order {
				if i > 0 {
					tc.release()
				}
				if want = append(want, more...); !slices.Equal(tc.order, want) || th.Used() > one.limit {
					t.Fatalf("behind %d releases %v have come, want %v; %d are held", i, tc.order, want, th.Used())
				}
				stopped := int64(0)
				for _, c := range tc.conns {
					if c.h.statistics(tc.c).Throttled {
						stopped++
					}
				}
				if th.Waiting() != stopped || (stopped == 0) != (len(want) == len(one.come)-len(one.closed)) {
					t.Errorf("behind %d releases %d wait, and %d are throttled", i, th.Waiting(), stopped)
				}
			}
			if tc.releaseEach(&tc.kept); th.Used() != 0 {
				t.Errorf("%d units are lost", th.Used())
			}
		})
	}
}

// Matrix: TH-12, TH-13
func TestLimitsChangeAtRunTime(t *testing.T) {
	th := loop.NewThrottle(4)
	tc := newThrottledConns(t, 1, &loop.Throttles{Frames: th})
	c := tc.conns[0]
	c.numbered(1, 20)
	th.SetLimit(2)
	tc.settle()
	if len(tc.kept) != 4 {
		t.Fatalf("%d messages held", len(tc.kept))
	}
	for _, want := range []int{4, 4, 4, 5, 6} { // drains to 2 held, then one for one
		if len(tc.order) != want {
			t.Fatalf("%d messages dispatched, want %d", len(tc.order), want)
		}
		tc.release()
	}
	th.SetLimit(5)
	tc.settle()
	if th.Used() != 5 {
		t.Fatalf("raised to 5: %d held", th.Used())
	}
	th.SetLimit(-5) // as 0
	tc.settle()
	if len(tc.order) != 20 || th.Waiting() != 0 {
		t.Fatalf("unlimited: %d of 20 messages, %d wait", len(tc.order), th.Waiting())
	}
}

// Wherever the socket ends, what the message held of the throttles and of memory comes back,
// also if its data might have been for a posting.
// Matrix: RP-03, TH-05, TH-11, INV-06
func TestUnitsReturnWhereverTheSocketEnds(t *testing.T) {
	for first, mode := range allModes {
		t.Run(mode.name, func(t *testing.T) {
			for _, large := range []int{100, 1 << 20} {
				msg := &Message{TID: 7, Front: payload(1, 20), Middle: payload(2, 5), Data: payload(3, 350)}
				size := len(newPeer(t, mode).message(1, 0, msg))
				b := newPostBed(t, loop.ReceiveReady, large)
				for cut := first; cut <= size; cut = max(cut+1, min(cut+7, size)) { // all modes together: every byte
					for i, way := range []string{"hang-up", "close", "old", "refused"} {
						ts := &loop.Throttles{Frames: loop.NewThrottle(5), Bytes: loop.NewThrottle(1000), Shared: loop.NewThrottle(1000)}
						c := b.conn(OpenOptions{Throttles: ts}, mode)
						if (cut+i)%2 == 0 {
							c.post(8, 400)
						}
						if way == "old" {
							c.h.inSeq = 7
						}
						wire := c.peer.message(1, 0, msg)
						c.arrive(wire[:cut])
						switch way {
						case "close":
							c.h.Close(nil)
						case "refused":
							c.h.Refuse()
							fallthrough
						case "old":
							c.sock.Arrive(wire[cut:])
						}
						c.settle()
						if way == "hang-up" {
							c.hangUp()
						}
						where := fmt.Sprintf("%s at %d of %d", way, cut, size)
						if got := len(c.own.list()); got > 1 || got == 1 && cut < size {
							t.Fatalf("%s: %d messages", where, got)
						}
						nothingHeld(t, c, ts, where)
						c.closeHandler()
					}
				}
			}
		})
	}
}

// Matrix: TH-08
func TestAThrottledConnectionDoesNotReadOnAndSeesItsEndAfterTheRelease(t *testing.T) {
	for _, together := range []bool{false, true} { // the messages and the end, in one read
		tc := newThrottledConns(t, 1, &loop.Throttles{Frames: loop.NewThrottle(1)})
		c := tc.conns[0]
		if together {
			for seq := range uint64(3) {
				c.sock.Whole = append(c.sock.Whole, c.peer.message(seq+1, 0, &Message{})...)
			}
		} else {
			c.numbered(1, 3)
		}
		c.hangUp()
		reads, turns := c.sock.Reads, tc.c.Counts().Turns
		for range 10 {
			tc.after(time.Second)
		}
		if c.sock.Reads != reads {
			t.Errorf("%d reads while throttled", c.sock.Reads-reads)
		}
		if spins := tc.c.Counts().Turns - turns; spins > 40 {
			t.Errorf("%d turns while throttled", spins)
		}
		c.alive("before the arrived messages were delivered")
		tc.releaseEach(&tc.kept)
		if len(tc.order) != 3 || !errors.Is(c.own.fault(), io.EOF) {
			t.Errorf("dispatched %v, fault %v", tc.order, c.own.fault())
		}
	}
}

// The task of the first call reaches the core that the handler has left, and comes to
// the new one behind that of the second call.
func TestTheLastOfPauseAndResumeHoldsWhileTheHandlerMoves(t *testing.T) {
	for _, pause := range []bool{true, false} {
		a, b := twoBeds(t, nil)
		c := a.conn(OpenOptions{})
		first, last := c.h.Resume, c.h.Pause
		if !pause {
			first, last = last, first
			c.h.Pause()
			c.settle()
		}
		between := loop.Task{Run: func(*loop.Core) {
			if c.h.Core() != b.c {
				t.Error("the handler is still on the old core")
			}
			last()
		}}
		arrive := c.leave(b)
		a.c.Post(&between)
		first()
		arrive()
		c.settle()
		c.arrive(c.peer.message(1, 0, &Message{TID: 1}))
		if got := len(c.own.list()); (got == 0) != pause || c.own.fault() != nil {
			t.Errorf("last called pause: %v, and %d messages came, %v", pause, got, c.own.fault())
		}
	}
}

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
			{"a clone is sent and kept", func(h *Handler, m *Message) { c := m.Clone(); c.Retain(); must(t, h.Send(c)) }, 1, 1},
			{"a clone of a clone is sent, and it is kept", func(h *Handler, m *Message) {
				c := m.Clone()
				must(t, h.Send(c.Clone()))
				c.Release()
				m.Retain()
			}, 1, 1},
			{"a clone is kept, and one of it is sent", func(h *Handler, m *Message) { must(t, h.Send(m.Clone().Clone())) }, 1, 1},
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
				if n, sent := l.held(size), l.send.Used(); one.sent > 0 && n != 0 || sent != one.sent*size {
					t.Errorf("%s: without an ack %d messages count as received, %d bytes as sent", where, n, sent)
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
		{"kept", func() {}, 1}, {"queued", m.queue, 0}, {"counted again", m.recharge, 0},
		{"sent", func() { m.dequeue(); m.Release() }, 1}, {"queued again", m.queue, 0},
		{"sent, and nobody else holds it", m.dequeue, 0}, {"released", m.Release, 0},
	} {
		if step.do(); l.held(1000) != step.held {
			t.Errorf("%s: %d messages count, want %d", step.name, l.held(1000), step.held)
		}
	}
	l.settle()
}

// A message that is not sent stays with its user, and so counts as before.
func TestAMessageThatAFrozenHandlerRefusesCountsAsReceived(t *testing.T) {
	l := newLimited(t, true, 1<<20, 1<<30)
	var m *Message
	l.own.onMessage = func(_ *Handler, got *Message) { m = got; m.Retain() }
	l.arrive(l.peer.message(1, 0, &Message{Front: make([]byte, 1000)}))
	other := l.bed.handler(HandlerConfig{})
	other.frozen()
	if err := other.h.Send(m); !errors.Is(err, ErrFrozen) || l.held(1000) != 1 {
		t.Errorf("%v, and %d messages count", err, l.held(1000))
	}
	m.Release()
	if l.settle(); l.held(1000) != 0 {
		t.Errorf("%d messages count at the end", l.held(1000))
	}
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
				charged(t, h, 5, 500) // of the five that follow
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
