package dataplane

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

func TestThrottleOfZeroIsUnlimited(t *testing.T) {
	for _, limit := range []int64{0, -5} {
		th := NewThrottle(limit)
		if th.Limit() != 0 {
			t.Fatalf("limit %d became %d", limit, th.Limit())
		}
		for range 100 {
			if !th.take(1<<40, 0) {
				t.Fatal("refused without a limit")
			}
		}
	}
}

func TestThrottleTakesAllOrNothing(t *testing.T) {
	messages, size, dispatch := NewThrottle(10), NewThrottle(1000), NewThrottle(500)
	ts := &Throttles{Messages: messages, Bytes: size, Dispatch: dispatch}
	a, full := ts.take(400, 0)
	if full != nil {
		t.Fatal("refused within the limits")
	}
	for _, one := range []struct {
		prepare func()
		want    *Throttle
		units   int64
	}{
		{func() {}, dispatch, 256},
		{func() { size.SetLimit(500) }, size, 200},
		{func() { messages.SetLimit(1) }, messages, 1},
	} {
		one.prepare()
		_, full := ts.take(200, 0)
		if full != one.want {
			t.Fatal("another throttle is full than expected")
		}
		if n := ts.units(full, 200); n != one.units {
			t.Fatalf("waits for %d units, want %d", n, one.units)
		}
		if messages.Used() != 1 || size.Used() != 400 || dispatch.Used() != 400 {
			t.Fatalf("a refusal left %d messages, %d and %d bytes", messages.Used(), size.Used(), dispatch.Used())
		}
	}
	a.giveBack()
	a.giveBack() // once is enough
	if messages.Used() != 0 || size.Used() != 0 || dispatch.Used() != 0 {
		t.Fatal("not everything came back")
	}
}

// Messages without payload take memory, too.
func TestAnyMessageTakesAShareOfTheDispatchThrottle(t *testing.T) {
	dispatch := NewThrottle(2 * MinDispatchShare)
	ts := &Throttles{Dispatch: dispatch}
	a, _ := ts.take(0, 0)
	b, full := ts.take(1, 0)
	if full != nil || dispatch.Used() != 2*MinDispatchShare {
		t.Fatalf("two small messages: %d of %d", dispatch.Used(), dispatch.Limit())
	}
	if _, full := ts.take(0, 0); full != dispatch || ts.units(full, 0) != MinDispatchShare {
		t.Fatal("a third one passed")
	}
	b.raise(MinDispatchShare + 1)
	if dispatch.Used() != 2*MinDispatchShare+1 {
		t.Fatalf("raised to %d", dispatch.Used())
	}
	a.giveBack()
	b.giveBack()
	if dispatch.Used() != 0 {
		t.Fatalf("%d bytes did not come back", dispatch.Used())
	}
}

func TestThrottleUnderContentionNeverExceedsItsLimit(t *testing.T) {
	th := NewThrottle(100)
	var running sync.WaitGroup
	for g := range 4 {
		running.Add(1)
		go func() {
			defer running.Done()
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for range 20000 {
				n := 1 + rng.Int64N(60)
				if th.take(n, 0) {
					if used := th.Used(); used > 100 {
						t.Errorf("%d of 100 units are taken", used)
					}
					th.put(n)
				}
			}
		}()
	}
	running.Wait()
	if th.Used() != 0 {
		t.Errorf("%d units are lost", th.Used())
	}
}

// throttledConns are connections of one core that share throttles; every
// message is kept until it is released.
type throttledConns struct {
	*bed
	conns []*conn
	kept  []*Message
	order []uint64 // TIDs in the order of dispatch
}

func newThrottledConns(t *testing.T, n int, ts *Throttles) *throttledConns {
	tc := &throttledConns{bed: newBed(t, nil)}
	for range n {
		c := tc.conn(OpenOptions{Throttles: ts})
		c.own.onMessage = func(_ *Handler, m *Message) {
			m.Retain()
			tc.kept = append(tc.kept, m)
			tc.order = append(tc.order, m.TID)
		}
		tc.conns = append(tc.conns, c)
	}
	return tc
}

// release gives back the oldest message.
func (tc *throttledConns) release() {
	m := tc.kept[0]
	tc.kept = tc.kept[1:]
	m.Release()
	tc.settle()
}

func TestMessageLimitLeavesTheNextOneUnreadUntilARelease(t *testing.T) {
	const limit, total = 3, 10
	th := NewThrottle(limit)
	tc := newThrottledConns(t, 1, &Throttles{Messages: th})
	c := tc.conns[0]
	for seq := uint64(1); seq <= total; seq++ {
		c.sock.arrive(c.peer.message(seq, 0, &Message{TID: seq, Front: make([]byte, 1000)}))
	}
	tc.settle()
	for done := limit; ; done++ {
		if len(tc.order) != min(done, total) || th.Used() > limit {
			t.Fatalf("%d messages dispatched, %d held, limit %d", len(tc.order), th.Used(), limit)
		}
		if len(tc.kept) == 0 {
			break
		}
		if want := done < total; (th.Waiting() == 1) != want || c.h.snapshot(tc.c).Throttled != want {
			t.Fatalf("after %d: %d wait, throttled=%v", done, th.Waiting(), !want)
		}
		tc.release()
	}
	for i, tid := range tc.order {
		if tid != uint64(i+1) {
			t.Fatalf("order %v", tc.order)
		}
	}
	if th.Used() != 0 {
		t.Errorf("%d units are lost", th.Used())
	}
}

func TestByteLimitCountsFrontMiddleAndData(t *testing.T) {
	th := NewThrottle(600)
	tc := newThrottledConns(t, 1, &Throttles{Bytes: th})
	c := tc.conns[0]
	c.sock.arrive(c.peer.message(1, 0, &Message{Front: make([]byte, 100), Middle: make([]byte, 200), Data: make([]byte, 300)}))
	c.sock.arrive(c.peer.message(2, 0, &Message{Front: make([]byte, 1)}))
	tc.settle()
	if th.Used() != 600 || len(tc.kept) != 1 {
		t.Fatalf("%d bytes of 600, %d messages", th.Used(), len(tc.kept))
	}
	tc.release()
	if th.Used() != 1 || len(tc.kept) != 1 {
		t.Fatalf("after the release: %d bytes, %d messages", th.Used(), len(tc.kept))
	}
}

func TestAMessageBeyondTheWholeLimitPassesAlone(t *testing.T) {
	th := NewThrottle(100)
	tc := newThrottledConns(t, 2, &Throttles{Bytes: th})
	a, b := tc.conns[0], tc.conns[1]
	a.sock.arrive(a.peer.message(1, 0, &Message{TID: 1, Front: make([]byte, 50)}))
	tc.settle()
	b.sock.arrive(b.peer.message(1, 0, &Message{TID: 2, Data: make([]byte, 100000)}))
	tc.settle()
	if len(tc.order) != 1 {
		t.Fatal("the large message passed beside another")
	}
	tc.release()
	if len(tc.order) != 2 || th.Used() != 100000 {
		t.Fatalf("the large message waits for ever: %v", tc.order)
	}
	a.sock.arrive(a.peer.message(2, 0, &Message{TID: 3, Front: make([]byte, 1)}))
	tc.settle()
	if len(tc.order) != 2 {
		t.Fatal("another passed beside the large message")
	}
	tc.release()
	if len(tc.order) != 3 {
		t.Fatal("nobody was told that the large message is gone")
	}
}

// TH-04: a large message that never finds the throttle empty enough, because
// small ones keep passing it, gets its turn all the same.
func TestALargeMessageDoesNotWaitForEver(t *testing.T) {
	th := NewThrottle(100)
	tc := newThrottledConns(t, 2, &Throttles{Bytes: th})
	small, large := tc.conns[0], tc.conns[1]
	arrive := func(seq uint64) {
		small.sock.arrive(small.peer.message(seq, 0, &Message{TID: seq, Front: make([]byte, 10)}))
		tc.settle()
	}
	arrive(1)
	large.sock.arrive(large.peer.message(1, 0, &Message{TID: 1000, Front: make([]byte, 96)}))
	tc.settle()
	for seq := uint64(2); seq <= vainTurns+1; seq++ {
		if slices.Contains(tc.order, 1000) {
			t.Fatalf("the large message passed beside others before its turn had come %d times", vainTurns)
		}
		arrive(seq)
		tc.release()
	}
	arrive(vainTurns + 2)
	tc.release()
	if !slices.Contains(tc.order, 1000) || th.Used() > 100+96 {
		t.Fatalf("dispatched %v, %d of 100 bytes held, %d wait", tc.order, th.Used(), th.Waiting())
	}
	for len(tc.kept) > 0 {
		tc.release()
	}
	if th.Used() != 0 {
		t.Errorf("%d bytes are held", th.Used())
	}
}

func TestWaitersAreWokenOneAtATimeAndInOrder(t *testing.T) {
	const n = 6
	th := NewThrottle(1)
	tc := newThrottledConns(t, n+1, &Throttles{Messages: th})
	for i, c := range tc.conns {
		c.sock.arrive(c.peer.message(1, 0, &Message{TID: uint64(i)}))
		tc.settle()
	}
	for i := range n + 1 {
		if len(tc.order) != i+1 || tc.order[i] != uint64(i) || th.Waiting() != int64(n-i) {
			t.Fatalf("release %d: dispatched %v, %d wait", i, tc.order, th.Waiting())
		}
		tc.release()
	}
}

func TestAWaiterThatKeepsItsPlaceIsServedBeforeLaterOnes(t *testing.T) {
	th := NewThrottle(100)
	tc := newThrottledConns(t, 3, &Throttles{Bytes: th})
	send := func(i int, tid uint64, size int) {
		c := tc.conns[i]
		c.sock.arrive(c.peer.message(tid, 0, &Message{TID: tid, Front: make([]byte, size)}))
		tc.settle()
	}
	send(0, 1, 50)
	send(0, 2, 50)
	send(1, 3, 90) // waits, and will be woken once in vain
	send(2, 4, 90)
	tc.release()
	if len(tc.order) != 2 || th.Waiting() != 2 {
		t.Fatalf("dispatched %v, %d wait", tc.order, th.Waiting())
	}
	tc.release()
	if len(tc.order) != 3 || tc.order[2] != 3 {
		t.Fatalf("dispatched %v: the first in line lost its place", tc.order)
	}
}

func TestTheNextInLineHearsOfWhatTheFirstLeaves(t *testing.T) {
	// The first takes its share and then waits again for more than is left;
	// what is left is enough for the second.
	th := NewThrottle(100)
	tc := newThrottledConns(t, 3, &Throttles{Bytes: th})
	send := func(i int, seq, tid uint64, size int) {
		c := tc.conns[i]
		c.sock.arrive(c.peer.message(seq, 0, &Message{TID: tid, Front: make([]byte, size)}))
	}
	send(0, 1, 1, 100)
	tc.settle()
	send(1, 1, 2, 40)
	tc.settle()
	tc.conns[1].sock.arrive(tc.conns[1].peer.message(2, 0, &Message{TID: 3, Front: make([]byte, 90)}))
	send(2, 1, 4, 10)
	tc.settle()
	tc.release()
	if len(tc.order) != 3 || tc.order[2] != 4 {
		t.Fatalf("dispatched %v, %d of 100 bytes held, %d wait", tc.order, th.Used(), th.Waiting())
	}
}

func TestADeadWaiterPassesTheWakeUpOn(t *testing.T) {
	th := NewThrottle(1)
	tc := newThrottledConns(t, 4, &Throttles{Messages: th})
	for i, c := range tc.conns {
		c.sock.arrive(c.peer.message(1, 0, &Message{TID: uint64(i)}))
		tc.settle()
	}
	for _, i := range []int{1, 2} {
		tc.conns[i].h.Close(nil)
		tc.settle()
	}
	tc.release()
	if len(tc.order) != 2 || tc.order[1] != 3 {
		t.Fatalf("dispatched %v: the wake-up died with its connection", tc.order)
	}
}

func TestLimitsChangeAtRunTime(t *testing.T) {
	th := NewThrottle(4)
	tc := newThrottledConns(t, 1, &Throttles{Messages: th})
	c := tc.conns[0]
	for seq := uint64(1); seq <= 20; seq++ {
		c.sock.arrive(c.peer.message(seq, 0, &Message{TID: seq}))
	}
	tc.settle()
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
	th.SetLimit(0)
	tc.settle()
	if len(tc.order) != 20 || th.Waiting() != 0 {
		t.Fatalf("unlimited: %d of 20 messages, %d wait", len(tc.order), th.Waiting())
	}
}

func TestRaisingALimitWakesAllThatFit(t *testing.T) {
	th := NewThrottle(1)
	tc := newThrottledConns(t, 5, &Throttles{Messages: th})
	for i, c := range tc.conns {
		c.sock.arrive(c.peer.message(1, 0, &Message{TID: uint64(i)}))
		tc.settle()
	}
	th.SetLimit(4)
	tc.settle()
	if len(tc.order) != 4 || th.Waiting() != 1 {
		t.Fatalf("%d messages under a limit of 4, %d wait", len(tc.order), th.Waiting())
	}
}

func TestReplayedMessagesAreChargedAgainOnlyWhenTheyCome(t *testing.T) {
	th := NewThrottle(10)
	c := newBed(t, nil).conn(OpenOptions{Throttles: &Throttles{Messages: th}})
	var kept []*Message
	c.own.onMessage = func(_ *Handler, m *Message) { m.Retain(); kept = append(kept, m) }
	for seq := uint64(1); seq <= 3; seq++ {
		c.sock.arrive(c.peer.message(seq, 0, &Message{}))
	}
	c.settle()
	c.sock.hangUp()
	c.settle()
	c.open(OpenOptions{Throttles: &Throttles{Messages: th}}, frame.Rev1, false)
	for seq := uint64(1); seq <= 4; seq++ { // three of them once more
		c.sock.arrive(c.peer.message(seq, 0, &Message{}))
	}
	c.settle()
	if th.Used() != 4 || len(kept) != 4 {
		t.Fatalf("%d units for %d messages", th.Used(), len(kept))
	}
	for _, m := range kept {
		m.Release()
	}
	if th.Used() != 0 {
		t.Fatalf("%d units are lost", th.Used())
	}
}

func TestAThrottledConnectionDoesNotReadOnAndSeesItsEndAfterTheRelease(t *testing.T) {
	th := NewThrottle(1)
	tc := newThrottledConns(t, 1, &Throttles{Messages: th})
	c := tc.conns[0]
	for seq := uint64(1); seq <= 3; seq++ {
		c.sock.arrive(c.peer.message(seq, 0, &Message{TID: seq}))
	}
	tc.settle()
	c.sock.hangUp()
	tc.settle()
	reads, turns := c.sock.reads, tc.c.stats.Turns
	for range 10 {
		tc.after(time.Second)
	}
	if c.sock.reads != reads {
		t.Errorf("%d reads while throttled", c.sock.reads-reads)
	}
	if spins := tc.c.stats.Turns - turns; spins > 40 {
		t.Errorf("%d turns while throttled", spins)
	}
	if c.own.fault() != nil {
		t.Error("faulted before what had arrived was delivered")
	}
	for range 3 {
		tc.release()
	}
	if len(tc.order) != 3 || c.own.fault() == nil {
		t.Errorf("dispatched %v, fault %v", tc.order, c.own.fault())
	}
}
