package dataplane

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// adaptive is a connection that chooses how it receives, and what it was sent.
type adaptive struct {
	*conn
	test *testing.T
	sent []*Message
}

func newAdaptive(t *testing.T, opt OpenOptions) *adaptive {
	return newReceiving(t, loop.ReceiveAuto, opt)
}

// newReceiving is newAdaptive for any mode.
func newReceiving(t *testing.T, mode loop.ReceiveMode, opt OpenOptions) *adaptive {
	return &adaptive{test: t, conn: newBed(t, receiving(mode)).conn(opt)}
}

// arrive brings messages with data of these sizes, one after the other.
func (a *adaptive) arrive(sizes ...int) {
	a.t.Helper()
	for _, n := range sizes {
		a.conn.arrive(a.message(n))
	}
}

// message is the next one of the stream.
func (a *adaptive) message(n int) []byte {
	m := &Message{TID: uint64(len(a.sent)), Type: 3, Data: payload(len(a.sent), n)}
	a.sent = append(a.sent, m)
	return a.peer.message(uint64(len(a.sent)), 0, m)
}

// small lets n small messages arrive.
func (a *adaptive) small(n int) {
	a.t.Helper()
	for range n {
		a.arrive(100)
	}
}

// expect says how the connection must receive now, and that it gets everything.
func (a *adaptive) expect(mode loop.ReceiveMode, why loop.Why) {
	a.t.Helper()
	st := a.h.statistics(a.c)
	if st.Receive != mode || st.ReceiveWhy != why {
		a.t.Fatalf("it receives by %q, %q, want %q, %q", st.Receive, st.ReceiveWhy, mode, why)
	}
	if shown, because := a.h.Receives(); shown != mode || because != why {
		a.t.Fatalf("others see %q, %q, want %q, %q", shown, because, mode, why)
	}
	if buffers := mode == loop.ReceiveBuffers; a.sock.Receiving != buffers || a.sock.Armed == buffers {
		a.t.Fatalf("mode %s: a receive is armed: %v, a watch: %v", mode, a.sock.Receiving, a.sock.Armed)
	}
	if n := a.c.Snapshot().Receiving; n == 1 != (mode == loop.ReceiveBuffers) {
		a.t.Fatalf("%d sockets are counted as receiving", n)
	}
}

// whole checks what has come up to now.
func (a *adaptive) whole() {
	a.t.Helper()
	checkReceived(a.test, a.own.list(), a.sent)
	if a.d.Lent != a.d.Released {
		a.t.Errorf("%d of %d receive buffers came back", a.d.Released, a.d.Lent)
	}
}

// Small messages bring the receive buffers, a large one brings readiness back for longer each time,
// and so does a shortage of buffers. Messages in between leave the way as it is, and those that
// come rarely stay with readiness.
// Matrix: IO-03, IO-23
func TestAConnectionReceivesAsItsMessagesWant(t *testing.T) {
	const ready, buffers = loop.ReceiveReady, loop.ReceiveBuffers
	type phase struct {
		n, size int // so many messages arrive
		mode    loop.ReceiveMode
		why     loop.Why
	}
	var longer []phase
	before := loop.WhyBegun
	for _, needs := range []int{4, 8, 16, 32} {
		longer = append(longer, phase{needs - 1, 100, ready, before}, phase{1, 100, buffers, loop.WhySmall}, phase{1,
			200 << 10, ready, loop.WhyLarge})
		before = loop.WhyLarge
	}
	longer = append(longer, phase{64, 100, buffers, loop.WhySmall}, phase{600, 100, buffers, loop.WhySmall},
		// steady for so long that it is trusted as at first
		phase{1, 200 << 10, ready, loop.WhyLarge}, phase{7, 100, ready, loop.WhyLarge}, phase{1, 100, buffers,
			loop.WhySmall})
	for _, one := range []struct {
		name   string
		every  time.Duration // between two messages
		out    int           // the phase before which no buffer is free
		phases []phase
	}{
		{"small", 0, -1, []phase{{3, 100, ready, loop.WhyBegun}, {1, 100, buffers, loop.WhySmall}, {50, 100, buffers,
			loop.WhySmall}}},
		{"large", 0, -1, longer},
		{"neither", 0, -1, []phase{{20, 12 << 10, ready, loop.WhyBegun}, {4, 100, buffers, loop.WhySmall}, {50,
			12 << 10, buffers, loop.WhySmall}, {20, 40 << 10, ready, loop.WhyLarge}}},
		{"rare", 2 * time.Second, -1, []phase{{100, 100, ready, loop.WhyBegun}}},
		{"no buffers", 0, 1, []phase{{6, 100, buffers, loop.WhySmall}, {2, 500, ready, loop.WhyExhausted}, {5, 100,
			ready, loop.WhyExhausted}, {1, 100, buffers, loop.WhySmall}}},
	} {
		t.Run(one.name, func(t *testing.T) {
			a := newAdaptive(t, OpenOptions{Lossy: true})
			a.expect(ready, loop.WhyBegun)
			var took, left uint64
			for i, p := range one.phases {
				if i == one.out {
					a.sock.RunOut()
				}
				was, _ := a.h.Receives()
				reads := a.sock.Reads
				for range p.n {
					a.Time += one.every
					a.arrive(p.size)
				}
				a.expect(p.mode, p.why)
				switch {
				case was == ready && p.mode == buffers:
					took++
				case was == buffers && p.mode == ready:
					left++
				case was == buffers && a.sock.Reads != reads:
					t.Errorf("phase %d: %d direct reads", i, a.sock.Reads-reads)
				}
			}
			if st := a.c.Snapshot(); st.TookBuffers != took || st.LeftBuffers != left {
				t.Errorf("%d times to the buffers and %d back, want %d and %d", st.TookBuffers, st.LeftBuffers, took,
					left)
			}
			a.whole()
		})
	}
}

// It holds back what was on its way, and by the ring's buffers a bounded amount.
func TestAConnectionThatIsStoppedReceivesNoMore(t *testing.T) {
	for _, mode := range receiveModes {
		ts := &loop.Throttles{Frames: loop.NewThrottle(5)}
		a := newReceiving(t, mode, OpenOptions{Throttles: ts})
		kept := a.keep()
		a.small(5)
		if mode == loop.ReceiveAuto {
			a.expect(loop.ReceiveBuffers, loop.WhySmall)
		}
		way := a.message(300) // more than one on its way when it is stopped
		for range 20 {
			way = append(way, a.message(300)...)
		}
		a.conn.arrive(way)
		most := a.h.sock.Backlog()
		switch mode {
		case loop.ReceiveAuto:
			a.expect(loop.ReceiveReady, loop.WhyStopped)
		case loop.ReceiveBuffers:
			most = loop.BacklogBytes + 64<<10
		}
		for range 400 {
			a.arrive(4000)
		}
		if n := a.h.sock.Backlog(); n > most || mode == loop.ReceiveAuto && n > len(way) {
			t.Errorf("%s: %d bytes are held back, want %d at most", mode, n, most)
		}
		if a.d.Lent != a.d.Released {
			t.Errorf("%s: a stopped connection keeps receive buffers", mode)
		}
		a.releaseEach(kept)
		a.whole()
	}
}

// Matrix: IO-23
func TestTheEndIsSeenByAConnectionThatWasStoppedAsItCame(t *testing.T) {
	ts := &loop.Throttles{Frames: loop.NewThrottle(5)}
	a := newAdaptive(t, OpenOptions{Lossy: true, Throttles: ts})
	kept := a.keep()
	a.small(5)
	a.sock.Arrive(append(a.message(300), a.message(300)...))
	a.hangUp()
	if !a.h.sock.HungUp() || a.own.fault() != nil {
		t.Fatalf("hung up: %v, fault %v", a.h.sock.HungUp(), a.own.fault())
	}
	a.releaseEach(kept)
	a.whole()
	if !errors.Is(a.own.fault(), io.EOF) {
		t.Errorf("fault %v", a.own.fault())
	}
}

// What the ring's buffers hold of one connection is not taken all at once: others, and who
// stops it from a task, come in between.
func TestAConnectionThatBringsMuchAtOnceWaitsForItsTurnAgain(t *testing.T) {
	a := newAdaptive(t, OpenOptions{Lossy: true})
	a.small(4)
	a.expect(loop.ReceiveBuffers, loop.WhySmall)
	before := len(a.sent)
	for range 900 {
		a.sock.Arrive(a.message(1000))
	}
	most, seen := 0, before
	for len(a.own.list()) < len(a.sent) {
		must(t, a.By.Turn())
		most, seen = max(most, len(a.own.list())-seen), len(a.own.list())
	}
	if most > (256+64+1)<<10/1000 {
		t.Errorf("%d messages in one turn", most)
	}
	a.settle()
	a.expect(loop.ReceiveReady, loop.WhyBehind)
	a.whole()
}

// A receive can end with the bytes by which the connection falls behind, as where the ring
// has no room for more answers.
// Matrix: IO-23
func TestAReceiveThatEndsWhereItFallsBehindIsFollowedByAWatch(t *testing.T) {
	a := newAdaptive(t, OpenOptions{Lossy: true})
	a.own.onMessage = func(*Handler, *Message) { a.Time += time.Millisecond } // a turn takes few of them
	a.small(4)
	a.expect(loop.ReceiveBuffers, loop.WhySmall)
	slice := func() (b []byte) {
		for len(b) < 240<<10 {
			b = append(b, a.message(1000)...)
		}
		return b
	}
	a.sock.Arrive(slice())
	must(t, a.By.Turn())
	b := slice()
	large := a.message(200 << 10)
	a.sock.Arrive(append(b, large[:100]...))
	last := &a.d.Queue[len(a.d.Queue)-1]
	last.Flags &^= uring.More
	a.sock.Receiving = false
	must(t, a.By.Turn())
	if n := a.h.sock.Backlog(); n < loop.BacklogBytes {
		t.Fatalf("%d bytes are held back", n)
	}
	a.settle()
	a.conn.arrive(large[100:])
	a.whole()
}

// It stands in line to be read when it goes over: what the kernel holds comes through the
// ring then, and not by a read that would overtake it.
// Matrix: IO-23
func TestNothingIsReadDirectlyWhileTheRingReceives(t *testing.T) {
	a := newAdaptive(t, OpenOptions{Lossy: true})
	for len(a.sock.Whole) < 1<<20 {
		a.sock.Whole = append(a.sock.Whole, a.message(1000)...)
	}
	a.sock.Edge(0)
	a.settle()
	if a.c.Snapshot().TookBuffers != 1 {
		t.Error("it did not go over to the buffers")
	}
	if a.sock.Crossed > 0 {
		t.Errorf("%d direct reads while the ring receives", a.sock.Crossed)
	}
	a.whole()
}

// How a connection receives goes along to another core, whatever it is about to change.
// Matrix: IO-23
func TestTheWayOfReceivingMovesWithTheConnection(t *testing.T) {
	for _, one := range []struct {
		small   int
		settles bool
		want    loop.ReceiveMode
	}{{0, true, loop.ReceiveReady}, {1, true, loop.ReceiveReady}, {4, true, loop.ReceiveBuffers}, {4, false, loop.ReceiveBuffers}} {
		b1, b2 := twoBeds(t, receiving(loop.ReceiveAuto))
		a := &adaptive{test: t, conn: b1.conn(OpenOptions{})}
		for range one.small {
			a.sock.Arrive(a.message(100))
		}
		if one.settles {
			a.settle()
		} else {
			for range 4 { // the last one has been read, and the watch is being cancelled
				must(t, a.By.Turn())
			}
			if a.sock.Armed || a.sock.Receiving {
				t.Error("it is not about to change")
			}
		}
		arrive := a.leave(b2)
		a.sock.Arrive(a.message(3000))
		arrive()
		a.arrive(200)
		if st := a.h.statistics(b2.c); st.Receive != one.want {
			t.Errorf("behind %d small messages it receives by %q on the other core", one.small, st.Receive)
		}
		a.whole()
	}
}

// Behind a large message one with the same head comes with its first read, into its place.
func TestALargeMessageIsReadInPlaceWithItsHeadBehindOneLikeIt(t *testing.T) {
	for _, size := range []int{64 << 10, 1 << 20, 3 << 20} {
		c := newBed(t, nil).conn(OpenOptions{Lossy: true})
		checkAligned(t, c.own, size)
		list := messagesOf([][3]int{{10, 0, size}, {10, 0, size}, {10, 0, size}})
		for i, m := range list {
			reads, behind := c.sock.Reads, c.sock.Behind
			c.arrive(c.peer.message(uint64(i+1), 0, m))
			want := max(1, (size+pieceBytes)/pieceBytes)
			if n := c.sock.Reads - reads; i > 0 && (n > want || c.sock.Behind > behind) {
				t.Errorf("message %d of %d bytes took %d reads, want %d; %d bytes were copied", i, size, n, want, c.sock.Behind-behind)
			}
		}
		must(t, c.own.fault())
		checkReceived(t, c.own.list(), list)
	}
}

// checkAligned has o check every message of at least from bytes of data, and that it
// stays where it is when it is retained.
func checkAligned(t *testing.T, o *recorder, from int) {
	o.onMessage = func(_ *Handler, m *Message) {
		if len(m.Data) < from {
			return
		}
		if !onPage(m.Data) {
			t.Errorf("data of %d bytes behind %d is not page-aligned", len(m.Data), len(m.Front)+len(m.Middle))
		}
		before := &m.Data[0]
		m.Retain()
		if &m.Data[0] != before {
			t.Errorf("data of %d bytes was copied by Retain", len(m.Data))
		}
		m.Release()
	}
}

// Small data that is aligned does not change how the connection is read.
func TestAlignedDataLeavesTheReceiveModeAsItIs(t *testing.T) {
	c := newBed(t, receiving(loop.ReceiveBuffers)).conn(OpenOptions{Lossy: true, AlignFrom: pageSize})
	c.arrive(c.peer.stream(messagesOf([][3]int{{10, 0, pageSize}})))
	if !c.sock.Receiving || len(c.own.list()) != 1 {
		t.Errorf("%d messages, receives into buffers: %v", len(c.own.list()), c.sock.Receiving)
	}
}
