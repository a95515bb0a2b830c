package dataplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestAnEarlyEventWaitsForThoseBeforeIt(t *testing.T) {
	b := newBed(t, nil)
	own := &recorder{}
	h := NewHandler(b.c, HandlerConfig{Owner: own})
	var list []*event
	for i := range 6 {
		list = append(list, &event{h: h, n: uint64(i + 1), run: func(h *Handler, _ *loop.Core) { own.Happened(h, i) }})
	}
	for _, i := range []int{5, 2, 0, 1, 4, 3} {
		list[i].arrive(b.c)
	}
	if got := fmt.Sprint(own.happened); got != "[0 1 2 3 4 5]" {
		t.Errorf("happened %s", got)
	}
	if countsOf(b.c).EarlyEvents != 3 || len(h.in.early) != 0 {
		t.Errorf("%d early events counted, %d still wait", countsOf(b.c).EarlyEvents, len(h.in.early))
	}
}

func seqs(frames []parsed) (list []uint64) {
	for _, f := range frames {
		if f.tag == frame.TagMessage {
			list = append(list, f.hd.Seq)
		}
	}
	return list
}

func tids(frames []parsed) (list []uint64) {
	for _, f := range frames {
		if f.tag == frame.TagMessage {
			list = append(list, f.hd.TID)
		}
	}
	return list
}

func span(from, to uint64) (list []uint64) {
	for ; from <= to; from++ {
		list = append(list, from)
	}
	return list
}

// The rows of ProtocolV2.cc: 5 messages were sent and 2 acknowledged, 2 more are queued
// while the connection is down, the peer had sent 3.
// Matrix: SE-25, FT-31, V1-11
func TestSequenceNumbersAfterEachKindOfReconnect(t *testing.T) {
	for _, one := range []struct {
		name       string
		event      func(h *Handler)
		seqs, tids []uint64
		acked      uint64 // what our first message acknowledges
	}{
		{"reconnect, nothing more received", func(h *Handler) { h.RequeueSentUpTo(2) }, span(3, 7), span(3, 7), 3},
		{"reconnect, some received", func(h *Handler) { h.RequeueSentUpTo(4) }, span(5, 7), span(5, 7), 3},
		{"reconnect, all received", func(h *Handler) { h.RequeueSentUpTo(5) }, span(6, 7), span(6, 7), 3},
		{"all requeued", func(h *Handler) { h.RequeueSent() }, span(3, 7), span(3, 7), 3},
		{"peer forgot everything", func(h *Handler) { h.ResetPeerState() }, span(1, 5), span(3, 7), 0},
		{"partial reset", func(h *Handler) { h.ResetSession(false); h.RequeueSent() }, span(3, 7), span(3, 7), 0},
		{"full reset", func(h *Handler) { h.ResetSession(true) }, nil, nil, 0},
		{"twice, and more received then", func(h *Handler) { h.RequeueSentUpTo(2); h.RequeueSentUpTo(4) }, span(3, 7), span(3, 7), 3},
		{"peer forgot everything but its number", func(h *Handler) { h.ResetPeerState(); h.RequeueSentUpTo(4) }, span(5, 9), span(3, 7), 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			c := newBed(t, nil).conn(OpenOptions{})
			for tid := uint64(1); tid <= 5; tid++ {
				must(t, c.h.Send(&Message{TID: tid}))
			}
			c.settle()
			for seq := uint64(1); seq <= 3; seq++ {
				c.sock.Arrive(c.peer.message(seq, 2, &Message{}))
			}
			c.settle()
			c.hangUp()
			if m := c.own.snapshots[0]; m != (Snapshot{InSeq: 3, OutSeq: 5, Queued: m.Queued, Sent: true, Useful: true, Notifications: 1}) {
				t.Fatalf("snapshot %+v", m)
			}
			must(t, c.h.Send(&Message{TID: 6}))
			c.send(&Message{TID: 7})
			one.event(c.h)
			c.open(OpenOptions{})
			frames := c.take()
			if !slices.Equal(seqs(frames), one.seqs) || !slices.Equal(tids(frames), one.tids) {
				t.Fatalf("sent seqs %v tids %v, want %v %v", seqs(frames), tids(frames), one.seqs, one.tids)
			}
			if len(one.seqs) > 0 && frames[0].hd.AckSeq != one.acked {
				t.Errorf("acknowledges %d, want %d", frames[0].hd.AckSeq, one.acked)
			}
			c.send(&Message{TID: 8})
			next := uint64(1)
			if n := len(one.seqs); n > 0 {
				next = one.seqs[n-1] + 1
			}
			if got := seqs(c.take()); len(got) != 1 || got[0] != next {
				t.Errorf("the next message has seq %v, want %d", got, next)
			}
		})
	}
}

// A socket that brought nothing is of no use, whatever the sockets before it have brought: also if it does not end by a fault.
// Matrix: SE-25
func TestASocketIsOfUseByWhatItBringsItself(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	suspended := func(want bool) {
		t.Helper()
		c.h.Delay(false, func(s Snapshot) {
			if s.Useful != want {
				t.Errorf("of use: %v, want %v", s.Useful, want)
			}
		})
		c.settle()
	}
	for range 2 {
		c.arrive(c.peer.message(1, 0, &Message{}))
		suspended(true)
		c.open(OpenOptions{})
		suspended(false)
		c.h.ResetPeerState()
		c.open(OpenOptions{})
	}
	c.send(&Message{})
	c.hangUp()
	c.h.RequeueSentUpTo(1) // the next socket brings the ack
	c.open(OpenOptions{})
	suspended(true)
}

// What is sent for the first time has numbers above those that the peer has.
func TestAReconnectTakesOverThePeersNumber(t *testing.T) {
	for queued := range uint64(3) { // before the reconnect
		c := newBed(t, nil).conn(OpenOptions{})
		c.delay()
		for tid := range queued {
			c.send(&Message{TID: tid})
		}
		c.h.RequeueSentUpTo(41)
		c.open(OpenOptions{})
		c.send(&Message{})
		if got := seqs(c.take()); !slices.Equal(got, span(42, 42+queued)) {
			t.Errorf("%d queued: seqs %v, want them from 42 on", queued, got)
		}
	}
}

func TestTheOwnerIsToldOnceThatSomethingIsQueued(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	c.h.Delay(true, nil)
	c.settle()
	if log := c.own.log(); len(log) != 0 {
		t.Fatalf("told %v with an empty queue", log)
	}
	for range 3 {
		c.send(&Message{})
	}
	if log := c.own.log(); !slices.Equal(log, []string{"queued"}) {
		t.Fatalf("told %v", log)
	}
	var m Snapshot
	c.h.Delay(true, func(got Snapshot) { m = got })
	c.settle()
	if log := c.own.log(); !slices.Equal(log, []string{"queued", "queued"}) || !m.Queued {
		t.Fatalf("told %v, snapshot %+v", log, m)
	}
	c.h.Delay(false, nil)
	c.send(&Message{})
	if log := c.own.log(); len(log) != 2 {
		t.Fatalf("told %v without having asked", log)
	}
	c.h.Delay(true, nil)
	c.closeHandler()
	if !slices.Equal(c.own.outs, []uint64{1, 2, 3}) {
		t.Errorf("numbers %v", c.own.outs)
	}
}

func TestAKeepaliveWakesAWaitingOwner(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	c.h.Delay(true, nil)
	c.h.Keepalive()
	c.settle()
	if log := c.own.log(); !slices.Equal(log, []string{"queued"}) {
		t.Fatalf("told %v", log)
	}
	c.open(OpenOptions{})
	if got := tags(c.take()); !slices.Equal(got, []frame.Tag{frame.TagKeepalive2}) {
		t.Errorf("sent %v", got)
	}
}

// openLost gives the handler a socket that is lost already, and returns the end that its tap has heard of.
func (c *conn) openLost() error {
	c.t.Helper()
	l, f := c.link()
	f.HangUp()
	l.Socket().Fault(loop.ErrLinkClosed)
	tap, codec := make(endsTap, 8), c.peer.ours()
	c.h.Open(l, OpenOptions{Codec: codec, Tap: tap})
	c.settle()
	wiped(c.t, codec)
	return tap.ended()
}

// wiped wants the keys of a codec to be forgotten.
func wiped(t testing.TB, c Codec) {
	t.Helper()
	_, out := c.enc.AppendFrame(nil, tagAck, make([]byte, 8))
	if _, in := c.dec.Open(make([]byte, c.dec.HeadSize())); !errors.Is(out, frame.ErrKeys) || !errors.Is(in, frame.ErrKeys) {
		t.Errorf("keys are left: %v, %v", out, in)
	}
}

// A message counts for the next fault alone, whatever ends its socket: the pauses between attempts
// that come to nothing grow.
func TestAFaultIsUsefulOnceForWhatCameBefore(t *testing.T) {
	for name, lose := range map[string]func(c *conn){
		"the socket is lost": func(c *conn) { c.hangUp() },
		"another core, to which it goes, refuses it": func(c *conn) {
			other := newBed(t, nil)
			c.h.Migrate(other.c, nil)
			c.settle()
			c.bed = other
			c.settle()
		},
	} {
		c := newBed(t, nil).conn(OpenOptions{}, wireModes[3])
		codec := Codec{enc: c.h.rx.enc, dec: c.h.rx.dec}
		c.arrive(c.peer.message(1, 0, &Message{}))
		lose(c)
		wiped(t, codec)
		if why := c.openLost(); !errors.Is(c.own.fault(), loop.ErrLinkClosed) || !errors.Is(why, loop.ErrLinkClosed) {
			t.Errorf("%s: fault %v, the tap has heard of the end: %v", name, c.own.fault(), why)
		}
		if n := len(c.own.snapshots); n != 2 || !c.own.snapshots[0].Useful || c.own.snapshots[1].Useful {
			t.Errorf("%s: %d faults, %+v", name, n, c.own.snapshots)
		}
	}
}

// endsTap has why its socket has ended.
type endsTap chan error

func (endsTap) Banner(bool, uint64, uint64) {}
func (endsTap) Frame(probe.Frame)           {}
func (endsTap) Part(probe.Part)             {}
func (e endsTap) Ended(why error)           { e <- why }

// ended is the first reason; nil: the socket has not ended.
func (e endsTap) ended() error {
	select {
	case why := <-e:
		return why
	default:
		return nil
	}
}

func TestOpenAfterCloseClosesTheSocket(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{}, wireModes[3])
	c.h.Close(nil)
	l, f := c.link()
	tap, codec := make(endsTap, 8), c.peer.ours()
	c.h.Open(l, OpenOptions{Codec: codec, Tap: tap})
	c.settle()
	if why := tap.ended(); !errors.Is(why, ErrDropped) {
		t.Errorf("the tap has heard of the end: %v", why)
	}
	wiped(t, codec)
	if c.h.state != stateDrop || f.CloseCalls != 1 || c.own.fault() != nil || c.c.Counts().Sockets != 0 {
		t.Errorf("state %v, closed %d times, fault %v, %d sockets", c.h.state, f.CloseCalls, c.own.fault(), c.c.Counts().Sockets)
	}
}

// Matrix: RP-05, INV-09
func TestAMoveTellsBothCoresInOrder(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	own := &recorder{}
	h := NewHandler(p.Core(0), HandlerConfig{Owner: own})
	h.Notify("before")
	h.Move(p.Core(1), MoveCause{Accepted: true, Replace: true}, func() { own.note("done") })
	h.Notify("after")
	h.Move(p.Core(1), MoveCause{}, nil) // to where it is
	h.Move(p.Core(0), MoveCause{}, nil)
	h.Notify("last")
	until(t, own, "the last event", func() bool { return slices.Contains(own.log(), "happened last") })
	want := []string{
		"happened before", "moving to 1", "moved from 0 accepted=true replace=true", "done", "happened after",
		"moved from 1 accepted=false replace=false", "moving to 0", "moved from 1 accepted=false replace=false", "happened last",
	}
	if log := own.log(); !slices.Equal(log, want) {
		t.Errorf("told %q\nwant %q", log, want)
	}
	if h.Core() != p.Core(0) {
		t.Error("it is elsewhere")
	}
}

// While a handler moves between cores, and its connection is replaced each
// time, nothing that goroutines send is lost, doubled or reordered.
// Matrix: SE-35, SE-44, XC-01, XC-02, XC-11
func TestConcurrentSendsSurviveMovesAndReconnects(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg loop.Config) {
		const senders, each, moves = 64, 50, 25
		cfg.Cores = 3
		p := newPlane(t, cfg)
		oa, ob := &recorder{}, &recorder{discard: true}
		var mu sync.Mutex
		next := make([]uint64, senders)
		var count atomic.Int64
		ob.onMessage = func(_ *Handler, m *Message) {
			mu.Lock()
			if m.TID != next[m.Type] {
				t.Errorf("sender %d: message %d, want %d", m.Type, m.TID, next[m.Type])
			}
			next[m.Type] = m.TID + 1
			mu.Unlock()
			count.Add(1)
			if count.Load() == senders*each {
				ob.told()
			}
		}
		ha := NewHandler(p.Core(0), HandlerConfig{Owner: oa})
		hb := NewHandler(p.Core(2), HandlerConfig{Owner: ob})
		join(t, ha, hb, OpenOptions{})
		var running sync.WaitGroup
		for g := range senders {
			running.Go(func() {
				for i := range each {
					if err := ha.Send(&Message{Type: uint16(g), TID: uint64(i), Front: make([]byte, i*7%3000)}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for i := range moves {
			// What the protocol does for a reconnect: both ends leave their
			// socket, the peer tells what it has, the rest is sent again.
			snapshots := make(chan Snapshot, 1)
			ha.Delay(false, nil)
			hb.Delay(false, func(m Snapshot) { snapshots <- m })
			got := <-snapshots
			arrived := make(chan struct{})
			ha.Move(p.Core((i+1)%2), MoveCause{}, func() { close(arrived) })
			ha.RequeueSentUpTo(got.InSeq)
			<-arrived
			join(t, ha, hb, OpenOptions{})
		}
		running.Wait()
		until(t, ob, "all messages", func() bool { return count.Load() == senders*each })
		if st, err := ha.Stats(); err != nil || st.OutSeq != senders*each || st.Opens != moves+1 {
			t.Errorf("%+v, %v", st, err)
		}
		if t.Failed() {
			t.Logf("%v %v", oa.log(), ob.log())
		}
	})
}

// Matrix: XC-12
func TestCloseRacingWithAMoveReleasesEverything(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	for round := range 200 {
		h := NewHandler(p.Core(0), HandlerConfig{Owner: &recorder{}})
		var freed, accepted atomic.Int64
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() {
				for {
					m := &Message{Front: make([]byte, 10), Free: func(*Message) { freed.Add(1) }}
					if err := h.Send(m); err != nil {
						if !errors.Is(err, ErrDropped) {
							t.Error(err)
						}
						return
					}
					accepted.Add(1)
				}
			})
		}
		h.Move(p.Core(1), MoveCause{}, nil)
		if round%2 == 0 {
			h.Move(p.Core(0), MoveCause{}, nil)
		}
		await(t, h.Close)
		running.Wait()
		for begun := time.Now(); freed.Load() != accepted.Load(); {
			_, err := h.Stats() // lets the core turn
			must(t, err)
			if time.Since(begun) > patience {
				t.Fatalf("round %d: %d of %d messages freed", round, freed.Load(), accepted.Load())
			}
		}
		charged(t, h, 0, 0)
	}
}

// receive has items arrive and returns them in the order of their turns.
func receive(q *Ordered[uint64], numbers ...uint64) (turns []uint64) {
	for _, n := range numbers {
		if !q.Arrive(n, 10*n) {
			continue
		}
		turns = append(turns, 10*n)
		for item, ok := q.Next(); ok; item, ok = q.Next() {
			turns = append(turns, item)
		}
	}
	return turns
}

func TestEveryOrderOfArrivalIsMended(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		n := 1 + rng.IntN(20)
		var numbers, want []uint64
		for i := range n {
			numbers = append(numbers, uint64(i+1))
			want = append(want, uint64(i+1)*10)
		}
		rng.Shuffle(n, func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
		var q Ordered[uint64]
		if got := receive(&q, numbers...); !slices.Equal(got, want) || len(q.early) != 0 {
			t.Fatal(fmt.Sprint(numbers, got))
		}
	}
}

func TestItemsInOrderCostNoMemory(t *testing.T) {
	var q Ordered[*int]
	n := uint64(0)
	if got := testing.AllocsPerRun(100, func() {
		n++
		if !q.Arrive(n, nil) {
			t.Error("not its turn")
		}
		q.Next()
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
