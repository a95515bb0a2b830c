package dataplane

import (
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// echoPair is two connected handlers, of which the second sends every message
// back.
type echoPair struct {
	h    *Handler
	m    *Message
	back chan struct{}
	left int
}

func newEchoPair(t testing.TB, cfg loop.Config, size int) *echoPair {
	t.Helper()
	cfg.Cores = 2
	p := newPlane(t, cfg)
	e := &echoPair{back: make(chan struct{}, 1)}
	oa, ob := &recorder{discard: true}, &recorder{discard: true}
	ob.onMessage = func(h *Handler, m *Message) {
		m.Retain()
		if err := h.Send(m); err != nil {
			m.Release()
		}
	}
	oa.onMessage = func(h *Handler, _ *Message) {
		if e.left--; e.left == 0 {
			e.back <- struct{}{}
			return
		}
		e.send(h)
	}
	e.m = &Message{Type: 1, Front: make([]byte, size)}
	e.h, _ = couple(t, p.Core(0), p.Core(1), oa, ob, OpenOptions{Lossy: true})
	e.run(100)
	return e
}

// send sends the one message again: it came back, so its earlier write is
// over, but perhaps its handler does not know yet.
func (e *echoPair) send(h *Handler) {
	e.m.Retain()
	if err := h.Send(e.m); err != nil {
		panic(err)
	}
}

// run does n round trips.
func (e *echoPair) run(n int) {
	e.left = n
	e.send(e.h)
	<-e.back
}

// Matrix: RL-11, OB-05
func TestSmallMessagesDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Log("allocations are counted, but not judged, in builds that check invariants")
	}
	overBackends(t, func(t *testing.T, cfg loop.Config) {
		for _, size := range []int{0, 64, 1500} {
			e := newEchoPair(t, cfg, size)
			trips := 200
			if invariants.Enabled {
				trips = 20
			}
			if n := testing.AllocsPerRun(5, func() { e.run(trips) }); n > float64(trips)/20 && !invariants.Enabled { // lists that still grow, now and then
				t.Errorf("%d B: %v allocations in %d round trips", size, n, trips)
			}
		}
	})
}

// The same without the kernel: not one allocation per message on either side.
// Matrix: RL-11
func TestSweepAndDispatchDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Log("allocations are counted, but not judged, in builds that check invariants")
	}
	for _, m := range allModes {
		for _, size := range []int{64, 4 << 10, 64 << 10, 300 << 10, 4 << 20} {
			t.Run(fmt.Sprintf("%s %d", m.name, size), func(t *testing.T) {
				l := newLoop(t, m, size)
				l.round()
				runs := 50
				if size > 1<<20 {
					runs = 5
				}
				if invariants.Enabled {
					runs = 2
				}
				if n := testing.AllocsPerRun(runs, l.round); n != 0 && !invariants.Enabled {
					t.Errorf("%v allocations per message", n)
				}
			})
		}
	}
}

// wireLoop is a sending and a receiving connection of one core, in memory: what
// the one transmits is fed to the other.
type wireLoop struct {
	b        *bed
	out, in  *conn
	m        *Message
	received int
}

func newLoop(t testing.TB, mode wireMode, size int) *wireLoop {
	l := &wireLoop{b: newBed(t, nil)}
	l.out = l.b.connMode(OpenOptions{Lossy: true}, mode)
	l.in = l.b.connMode(OpenOptions{Lossy: true}, mode)
	if mode.msgr1 == nil {
		// The receiver decodes what the sender encodes: the role of the peer.
		l.in.h.rx.dec = l.out.peer.dec
	}
	l.in.own.discard = true
	l.in.own.onMessage = func(*Handler, *Message) { l.received++ }
	l.m = &Message{}
	if size > 4<<10 {
		l.m.Front, l.m.Data = make([]byte, 100), make([]byte, size)
	} else {
		l.m.Front = make([]byte, size)
	}
	return l
}

func (l *wireLoop) round() {
	want := l.received + 1
	l.m.Retain()
	if err := l.out.h.Send(l.m); err != nil {
		panic(err)
	}
	for l.received < want {
		if err := l.b.By.Turn(); err != nil {
			panic(err)
		}
		if f := l.out.sock; len(f.Sent) > 0 {
			l.in.sock.Whole = f.Sent
			l.in.sock.Edge(0)
			if err := l.b.By.Turn(); err != nil {
				panic(err)
			}
			for len(l.in.sock.Whole) > 0 {
				if err := l.b.By.Turn(); err != nil {
					panic(err)
				}
			}
			f.Sent = f.Sent[:0]
		}
	}
}

// A message each way on a lossless session of msgr1, with an ack for each.
// Matrix: V1-07
func TestAcksOfMsgr1DoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Log("allocations are counted, but not judged, in builds that check invariants")
	}
	for _, mode := range msgr1Modes {
		b := newBed(t, nil)
		c := b.connMode(OpenOptions{}, mode)
		c.own.discard = true
		m := &Message{Front: make([]byte, 64)}
		const runs = 100
		var in [][]byte // a message, and the ack for ours
		for seq := uint64(1); seq <= runs+2; seq++ {
			in = append(in, c.peer.message(seq, seq, &Message{Front: make([]byte, 64)}))
		}
		round := func() {
			m.Retain()
			if err := c.h.Send(m); err != nil {
				panic(err)
			}
			for c.h.sent.n == 0 {
				must(t, b.By.Turn())
			}
			c.sock.Whole, in = in[0], in[1:]
			c.sock.Edge(0)
			for c.h.sent.n > 0 || c.h.unacked > 0 || b.By.Busy() {
				must(t, b.By.Turn())
			}
			c.sock.Sent = c.sock.Sent[:0]
		}
		round()
		if n := testing.AllocsPerRun(runs, round); n != 0 && !invariants.Enabled {
			t.Errorf("%s: %v allocations", mode.name, n)
		}
		if st := c.h.statistics(c.c); st.AcksOut != st.MessagesIn || st.AcksIn != st.MessagesOut || c.own.fault() != nil {
			t.Errorf("%s: %+v, fault %v", mode.name, st, c.own.fault())
		}
	}
}
