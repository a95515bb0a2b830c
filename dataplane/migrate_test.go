package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// migrate brings a handler to a core and waits for it.
func migrate(t testing.TB, h *Handler, to *loop.Core) {
	t.Helper()
	await(t, func(done func()) { h.Migrate(to, done) })
}

// bench with two fake drivers: every step is under control.
func twoBeds(t *testing.T, change func(*loop.Config, *fakedriver.Driver)) (a, b *bed) {
	return newBed(t, change), newBed(t, change)
}

// leave has c go to the bed b, with its socket. What it returns waits for that.
func (c *conn) leave(b *bed) (arrive func()) {
	arrived := false
	c.h.Migrate(b.c, func() { arrived = true })
	return func() {
		c.t.Helper()
		b.d.Socks[c.sock.Sock.FD()] = c.sock // the fake drivers do not see the descriptor
		for range 20 {
			c.settle()
			if b.settle(); arrived {
				c.bed = b
				return
			}
		}
		c.t.Fatal("the socket does not arrive")
	}
}

// inFlight is a connection with a write in flight, and a core to which it may go.
func inFlight(t *testing.T) (a, b *bed, c *conn) {
	a, b = twoBeds(t, nil)
	c = a.conn(OpenOptions{})
	c.sock.Park = true
	c.send(&Message{TID: 1, Front: payload(1, 5000)})
	if c.sock.InFlight == nil {
		t.Fatal("no write in flight")
	}
	return a, b, c
}

// A write that is in flight ends before the socket leaves, and what was queued
// meanwhile follows on the new core.
func TestAWriteInFlightEndsBeforeTheSocketLeaves(t *testing.T) {
	a, b, c := inFlight(t)
	arrive := c.leave(b)
	c.send(&Message{TID: 2})
	b.settle()
	if c.h.Core() != a.c {
		t.Fatal("the socket left with a write in flight")
	}
	c.sock.Park = false
	c.sock.Finish(0)
	arrive()
	c.settle()
	if got := tids(c.take()); fmt.Sprint(got) != "[1 2]" || c.own.fault() != nil {
		t.Errorf("sent %v, fault %v", got, c.own.fault())
	}
}

// An event that comes while the socket waits for its write is not held up.
func TestAnEventEndsTheWaitOfASocketThatCannotLeave(t *testing.T) {
	a, b, c := inFlight(t)
	c.h.Migrate(b.c, nil)
	a.settle()
	closed := false
	c.h.Close(func() { closed = true })
	for range 5 {
		a.settle()
		b.settle()
	}
	if !closed || c.h.Core() != b.c {
		t.Errorf("closed %v on core %v", closed, c.h.Core() == b.c)
	}
	if c.sock.CloseCalls != 1 {
		t.Errorf("%d closes", c.sock.CloseCalls)
	}
}

// Nor is one that came before the move, from another mailbox, and waits for its turn behind it.
func TestAnEventThatCameBeforeTheMoveEndsTheWaitOfItsSocket(t *testing.T) {
	a, b, c := inFlight(t)
	before := c.h.posted
	c.h.posted += 2 // the numbers of the move
	closed := false
	c.h.Close(func() { closed = true })
	after := c.h.posted
	a.settle()
	c.h.posted = before
	c.h.Migrate(b.c, nil)
	c.h.posted = after
	for range 5 {
		a.settle()
		b.settle()
	}
	if !closed || c.h.Core() != b.c {
		t.Errorf("closed %v on core %v", closed, c.h.Core() == b.c)
	}
}

// While it waits it is looked after as before: both sides may leave at once, and each not read what the
// other has in flight.
func TestASocketThatCannotLeaveIsGivenUpLikeAnyOther(t *testing.T) {
	a, b := twoBeds(t, nil)
	c := a.conn(OpenOptions{Throttles: &loop.Throttles{Frames: loop.NewThrottle(1)}})
	kept := c.keep()
	c.sock.Park = true
	c.send(&Message{TID: 1})
	c.h.Migrate(b.c, nil)
	c.numbered(1, 2)
	a.after(giveUpAfter)
	if b.settle(); !errors.Is(c.own.fault(), errGivenUp) || c.h.Core() != b.c || len(*kept) != 1 {
		t.Errorf("fault %v, on the other core: %v, %d messages", c.own.fault(), c.h.Core() == b.c, len(*kept))
	}
}

// One that waits for a throttle has its patience anew, or the rest of it, on the other core.
func TestAStoppedSocketIsNotGivenUpBecauseItMoves(t *testing.T) {
	a, b := twoBeds(t, nil)
	a.after(giveUpMost)
	b.after(giveUpMost)
	c := a.conn(OpenOptions{Throttles: &loop.Throttles{Frames: loop.NewThrottle(1)}})
	kept := c.keep()
	c.send(&Message{TID: 1})
	c.numbered(1, 2)
	c.leave(b)()
	for _, want := range []bool{false, true} {
		b.after(giveUpAfter / 2)
		if err := c.own.fault(); errors.Is(err, errGivenUp) != want || len(*kept) != 1 {
			t.Errorf("fault %v, want one: %v; %d messages", err, want, len(*kept))
		}
	}
}

// Matrix: TH-09
func TestASocketThatCannotLeaveGoesOnBehindItsRest(t *testing.T) {
	a, b, c := inFlight(t)
	for range 2 * DefaultControlRate {
		c.sock.Arrive(c.peer.ack(0))
	}
	if a.settle(); !c.h.sock.Resting() {
		t.Fatal("it does not rest")
	}
	c.h.Migrate(b.c, nil)
	c.numbered(1, 1)
	for range 100 {
		a.after(controlPause)
	}
	if n := len(c.own.list()); n != 1 || c.h.Core() != a.c {
		t.Errorf("%d messages, left: %v", n, c.h.Core() != a.c)
	}
}

// A core may look at a connection that is on its way to it before the socket is there: what was asked for is done then.
func TestAResumeBetweenTwoCoresIsNotForgotten(t *testing.T) {
	a, b := twoBeds(t, nil)
	c := a.conn(OpenOptions{})
	c.h.Pause()
	c.settle()
	c.sock.Arrive(c.peer.message(1, 0, &Message{TID: 1}))
	c.settle()
	if n := len(c.own.list()); n != 0 {
		t.Fatalf("%d messages while it is paused", n)
	}
	c.own.onMoved = func(h *Handler) {
		h.Resume()
		h.touched(b.c) // before the socket is there
	}
	c.leave(b)()
	c.settle()
	if n := len(c.own.list()); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// A connection that stands in the line of a throttle stands there again on its
// new core, and gets its share when others give back.
func TestAThrottledConnectionChangesCores(t *testing.T) {
	overPlanes(t, 3, func(t *testing.T, p *loop.Plane) {
		kept := make(chan *Message, 100)
		oa := &recorder{}
		ob := &recorder{onMessage: func(_ *Handler, m *Message) { m.Retain(); kept <- m }}
		line := loop.NewThrottle(1)
		ha, hb := couple(t, p.Core(0), p.Core(1), oa, ob, OpenOptions{Throttles: &loop.Throttles{Frames: line}})
		for i := range 10 {
			must(t, ha.Send(&Message{TID: uint64(i + 1), Front: payload(i, 3000)}))
		}
		for i := range 10 {
			if i < 9 {
				until(t, ob, "a connection that waits", func() bool { _, _ = hb.Stats(); ob.told(); return line.Waiting() == 1 })
			}
			migrate(t, hb, p.Core(1+i%2))
			select {
			case m := <-kept:
				if m.TID != uint64(i+1) {
					t.Fatalf("message %d, want %d", m.TID, i+1)
				}
				m.Release()
			case <-time.After(patience):
				t.Fatalf("message %d does not come; %d wait", i+1, line.Waiting())
			}
		}
		if oa.fault() != nil || ob.fault() != nil {
			t.Error(oa.fault(), ob.fault())
		}
	})
}

// A message of a lossy session that is in a write is out of the queue, and has not left: our direction ends behind it.
func TestADrainWaitsForTheWriteInFlight(t *testing.T) {
	// By the result of the write, and by the seconds until the peer hangs up.
	for by, want := range map[[2]int]error{{0, 0}: nil, {0, 2}: ErrUndelivered, {-1, 0}: ErrUndelivered} {
		c := newBed(t, nil).conn(OpenOptions{Lossy: true, IdleAfter: time.Second})
		c.sock.Park = true
		c.send(&Message{TID: 1})
		ended := make(chan error, 1)
		c.h.Drain(DrainOptions{Done: func(err error) { ended <- err }})
		for range 3 {
			c.after(drainEvery)
		}
		if c.sock.WriteEnded || len(ended) != 0 {
			t.Error("our direction has ended before the message")
		}
		c.finish(int32(by[0]))
		if c.after(drainEvery); c.sock.WriteEnded != (by[0] == 0) {
			t.Error("our direction goes on behind the message, or behind the end")
		}
		c.after(time.Duration(by[1]) * time.Second)
		c.hangUp()
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("%v: the drain has ended with %v", by, err)
		}
	}
}

// One that begins between two cores does not take the connection for one without a socket.
func TestADrainThatBeginsBetweenTwoCoresWaitsForTheSocket(t *testing.T) {
	a, b := twoBeds(t, nil)
	c := a.conn(OpenOptions{Lossy: true})
	ended := make(chan error, 1)
	c.own.onMoved = func(h *Handler) { h.drain(b.c, DrainOptions{Done: func(err error) { ended <- err }}) }
	c.leave(b)()
	if c.after(drainEvery); !c.sock.WriteEnded || len(ended) != 0 {
		t.Errorf("our direction has ended: %v, the drain has: %v", c.sock.WriteEnded, len(ended) != 0)
	}
	c.hangUp()
	must(t, <-ended)
}

// The peer has lost the session, and with it a message that waited, unless that outlives the reset.
func TestADrainSaysThatItsSessionWasReset(t *testing.T) {
	for tracker, want := range map[Tracker]error{nil: ErrUndelivered, &follower{}: nil} {
		c := newBed(t, nil).handler(HandlerConfig{})
		must(t, c.h.SendTracked(&Message{TID: 1}, tracker))
		ended := make(chan error, 1)
		c.h.Drain(DrainOptions{Done: func(err error) { ended <- err }})
		c.h.ResetSession(true)
		c.settle()
		c.open(OpenOptions{Lossy: true})
		c.after(drainEvery)
		c.hangUp()
		if len(ended) != 1 || !errors.Is(<-ended, want) {
			t.Errorf("the drain has not ended, or not with %v", want)
		}
	}
}

// A drain goes on where its handler is, also after the end of the core on which it began. It ends with its
// handler at once, as a core that is ending fires no timer.
func TestADrainGoesWithItsHandler(t *testing.T) {
	for name, move := range map[string]func(h *Handler, to *loop.Core){
		"migrate": func(h *Handler, to *loop.Core) { h.Migrate(to, nil) },
		"move":    func(h *Handler, to *loop.Core) { h.Move(to, MoveCause{}, nil) },
		"close":   func(h *Handler, _ *loop.Core) { h.Close(nil) },
	} {
		a, b := twoBeds(t, nil)
		c := a.handler(HandlerConfig{})
		must(t, c.h.Send(&Message{TID: 1}))
		ended := make(chan error, 1)
		c.h.Drain(DrainOptions{Done: func(err error) { ended <- err }})
		c.h.Migrate(a.c, nil) // it is there
		c.h.Move(a.c, MoveCause{}, nil)
		a.settle()
		move(c.h, b.c)
		a.settle()
		if own, other := a.c.Load(), b.c.Load(); own != 0 || other != 1 && name != "close" {
			t.Errorf("%s: load %d and %d", name, own, other)
		}
		a.close()
		if c.bed = b; name != "close" {
			b.settle()
			c.h.Delay(false, nil)
			c.open(OpenOptions{Lossy: true})
			b.after(drainEvery)
			if !c.sock.WriteEnded || len(ended) > 0 {
				t.Errorf("%s: our direction has ended: %v, the drain has: %v", name, c.sock.WriteEnded, len(ended) > 0)
			}
			c.hangUp()
		}
		if len(ended) != 1 || errors.Is(<-ended, ErrUndelivered) != (name == "close") {
			t.Errorf("%s: the drain has not ended, or wrongly", name)
		}
	}
}

// The new core can be gone: the session is what is left.
func TestASocketThatArrivesAtADeadCoreIsLost(t *testing.T) {
	drivertest.CheckLeaks(t, func() {
		p := newPlane(t, loop.Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}})
		oa, ob := &recorder{}, &recorder{}
		tap := make(endsTap, 8) // of both
		ha, hb := couple(t, p.Core(0), p.Core(1), oa, ob, OpenOptions{Tap: tap})
		must(t, ha.Send(&Message{TID: 1}))
		until(t, ob, "the message", func() bool { return len(ob.list()) == 1 })
		dead := p.Core(2)
		must(t, p.RemoveCore(deadline(t), dead))
		migrate(t, hb, dead)
		until(t, ob, "the fault", func() bool { return errors.Is(ob.fault(), loop.ErrStopped) })
		until(t, oa, "the peer's fault", func() bool { return oa.fault() != nil })
		if len(tap) != 2 {
			t.Errorf("taps of %d sockets have heard of the end", len(tap))
		}
		await(t, func(done func()) { hb.Move(p.Core(1), MoveCause{}, done) })
		hb.RequeueSentUpTo(0)
		ha.RequeueSentUpTo(1)
		join(t, ha, hb, OpenOptions{})
		must(t, ha.Send(&Message{TID: 2}))
		until(t, ob, "the message behind it", func() bool { return len(ob.list()) == 2 })
		ctx, cancel := context.WithCancel(deadline(t))
		cancel()
		if err := p.RemoveCore(ctx, dead); !errors.Is(err, loop.ErrNoCore) {
			t.Errorf("removed twice: %v", err)
		}
		p.Close()
	})
}

// frozen freezes the handler, and returns its state.
func (c *conn) frozen() (st HandlerState) {
	c.t.Helper()
	c.h.Freeze(func(got HandlerState) { st = got })
	c.settle()
	return st
}

func TestFrozenHandlerKeepsItsQueueAndTakesNothing(t *testing.T) {
	c := newBed(t, nil).handler(HandlerConfig{QueueMessages: 3})
	first, urgent, last := NewMessage(1, nil, nil), &Message{Priority: PriorityHigh}, NewMessage(3, nil, nil)
	must(t, c.h.Send(first))
	c.settle()
	c.h.notified.Store(true) // the next one is in the inbox when the handler freezes
	must(t, c.h.Send(urgent))
	if st := c.frozen(); len(st.Sent)+len(st.Replay) != 0 || !slices.Equal(st.Queued, []*Message{urgent, first}) {
		t.Errorf("%+v", st)
	}
	room := c.h.Room()
	for range 3 { // what is refused takes no room
		if err := c.h.Send(last); !errors.Is(err, ErrFrozen) {
			t.Errorf("Send: %v", err)
		}
	}
	charged(t, c.h, 2, 0)
	c.h.Thaw()
	c.settle()
	<-room
	must(t, c.h.Send(last))
	if st := c.frozen(); !slices.Equal(st.Queued, []*Message{urgent, first, last}) {
		t.Errorf("behind a thaw: %+v", st)
	}
	c.closeHandler()
	if err := c.h.Send(NewMessage(1, nil, nil)); !errors.Is(err, ErrDropped) {
		t.Errorf("Send after Close: %v", err)
	}
	if st := c.frozen(); len(st.Queued) != 0 {
		t.Errorf("a closed handler has %+v", st)
	}
}

// A message that was sent before its handler has frozen is in the state, though the core was not told of it before.
func TestAMessageThatIsSentWhileTheHandlerFreezesIsInItsState(t *testing.T) {
	c := newBed(t, nil).handler(HandlerConfig{})
	var got HandlerState
	c.h.Freeze(func(st HandlerState) { got = st })
	m := NewMessage(1, nil, nil)
	must(t, c.h.Send(m)) // its task comes behind the event
	c.settle()
	if len(got.Queued) != 1 || got.Queued[0] != m {
		t.Errorf("the state has %d messages", len(got.Queued))
	}
	if err := c.h.Send(NewMessage(1, nil, nil)); !errors.Is(err, ErrFrozen) {
		t.Errorf("sent to a frozen handler: %v", err)
	}
	c.closeHandler()
}

func TestRestoredHandlerHasTheStateOfTheFrozenOne(t *testing.T) {
	b := newBed(t, nil)
	c, m := b.handler(HandlerConfig{QueueMessages: 1}), make([]*Message, 6)
	for i := range m {
		m[i] = NewMessage(uint16(i), make([]byte, 10), nil)
	}
	must(t, c.h.Restore(HandlerState{InSeq: 4, OutSeq: 9, Sent: m[:2], Replay: m[2:4], Queued: m[4:]}))
	if m[0].Seq() != 8 || m[1].Seq() != 9 {
		t.Errorf("sequences %d and %d", m[0].Seq(), m[1].Seq())
	}
	charged(t, c.h, 6, 60)
	c.h.RequeueSentUpTo(8)
	if got := c.frozen(); got.InSeq != 4 || got.OutSeq != 8 || len(got.Sent) != 0 || !slices.Equal(got.all(), m[1:]) || len(got.Replay) != 3 {
		t.Errorf("%+v", got)
	}
	tooMany := HandlerState{OutSeq: 1, Sent: []*Message{NewMessage(1, nil, nil), NewMessage(1, nil, nil)}}
	if b.handler(HandlerConfig{}).h.Restore(tooMany) == nil {
		t.Error("more messages than sequences are restored")
	}
}
