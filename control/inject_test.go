package control_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// injects configures a node.
func injects(i control.Inject) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) { c.Diagnostics.Inject = i }
}

// arrivals are the transaction ids that came, by the front of their messages.
type arrivals struct {
	mu   sync.Mutex
	tids map[string][]uint64 // guarded by mu
}

func (a *arrivals) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tids[string(m.Front)] = append(a.tids[string(m.Front)], m.TID)
		return true
	}}
}

func (a *arrivals) of(front string) []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.tids[front])
}

// injectedLoad is how many connections there are between dialling and accepting nodes, and
// what is sent.
type injectedLoad struct{ from, to, operations int }

func injectedSize() injectedLoad {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return injectedLoad{10, 5, 10_000}
	}
	return injectedLoad{2, 2, 240}
}

// Over sockets one operation in thirty of which fails, with handshakes and dispatches
// that take their time, and connections that are marked down by chance: what a session
// that lives was given arrives exactly once and in order, of one that was marked down a
// beginning, and nothing is held in the end.
// Matrix: FT-32, V1-10
func TestInjectedFailuresLoseNoMessage(t *testing.T) {
	seed := seedOfSample(t)
	t.Logf("RINGMSGR_SAMPLE=%d", seed)
	overVariants(t, slices.Concat(newest, msgr1Variants), func(t *testing.T, _ context.Context, v variant) {
		size := injectedSize()
		ctx, cancel := context.WithTimeout(t.Context(), 20*sessionTime)
		defer cancel()
		fault := func(n uint64) func(*nodetest.NodeConfig) {
			return injects(control.Inject{
				Seed: seed*1000 + n + 1, SocketFailures: 30, Handshakes: control.Delay{Probability: 0.05, Max: 5 * time.Millisecond},
				Messages: control.Delay{Probability: 0.1, Max: 5 * time.Millisecond},
			})
		}
		var from, to []*nodetest.Node
		got := &arrivals{tids: make(map[string][]uint64)}
		for i := range size.to {
			to = append(to, nodeOf(t, v, fmt.Sprintf("osd.%d", i), "LP", uint32(100+i), withChain(got.dispatcher()), fault(uint64(i)), tightly))
		}
		for i := range size.from {
			from = append(from, nodeOf(t, v, fmt.Sprintf("osd.%d", 50+i), "LP", uint32(1+i), fault(uint64(50+i))))
		}
		var wg sync.WaitGroup
		var faults atomic.Uint64
		for i := range size.from * size.to {
			wg.Go(func() {
				l := injectedLine{t: t, ctx: ctx, number: i, from: from[i%size.from], to: to[i/size.from], got: got, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
				l.run(size.operations / (size.from * size.to))
				faults.Add(l.faults)
			})
		}
		wg.Wait()
		if faults.Load() == 0 {
			t.Error("no socket has failed")
		}
		for _, n := range append(from, to...) {
			holdsNothing(t, ctx, n)
		}
	})
}

// tightly has all connections of a node share throttles that a few messages fill.
func tightly(c *nodetest.NodeConfig) {
	c.Default.Messages, c.Default.Bytes, c.Receiving.Bytes = loop.NewThrottle(8), loop.NewThrottle(20_000), 30_000
}

// injectedLine is one of the connections, and those that take its place.
type injectedLine struct {
	t        *testing.T
	ctx      context.Context
	number   int
	from, to *nodetest.Node
	got      *arrivals
	rng      *rand.Rand
	faults   uint64 // sockets that all of them lost
}

// run sends, in bursts, until so many messages were sent.
func (l *injectedLine) run(n int) {
	for generation := 0; n > 0; generation++ {
		front := fmt.Sprintf("%d/%d", l.number, generation)
		conn, sent := l.from.Dial(l.to), 0
		down := false
		for n > 0 && !down {
			for range min(n, 1+l.rng.IntN(6)) {
				m := numbered(uint64(sent), control.NewMessage(1, []byte(front), bytes.Repeat([]byte{1}, l.rng.IntN(3)*3000)))
				if err := conn.SendContext(l.ctx, m); err != nil {
					l.t.Errorf("%s: %v", front, err)
					return
				}
				n--
				sent++
			}
			if down = n > 0 && l.rng.IntN(12) == 0; down {
				l.countFaults(conn)
				conn.MarkDown()
				<-conn.Closed()
				break
			}
			eventually(l.t, l.ctx, "a burst of "+front, func() bool { return len(l.got.of(front)) >= sent })
		}
		if !down {
			l.countFaults(conn)
		}
		got := l.got.of(front)
		for i, tid := range got {
			if tid != uint64(i) {
				l.t.Errorf("%s: %v of %d arrived", front, got, sent)
				return
			}
		}
		if len(got) > sent || !down && len(got) < sent {
			l.t.Errorf("%s: %d of %d arrived", front, len(got), sent)
		}
	}
}

func (l *injectedLine) countFaults(conn *control.Conn) {
	st, err := conn.Stats()
	if err != nil {
		l.t.Error(err)
		return
	}
	l.faults += st.Counters.Faults
}

// holdsNothing waits until the throttles and queues of a node are empty.
func holdsNothing(t *testing.T, ctx context.Context, n *nodetest.Node) {
	t.Helper()
	eventually(t, ctx, "empty throttles of "+n.Name().String(), func() bool {
		for _, c := range n.Conns() {
			st, err := c.Stats()
			if err != nil || st.HeldBytes != 0 || st.IO.Sent != 0 {
				return false
			}
			for _, th := range st.Throttles {
				if th.Used != 0 {
					return false
				}
			}
		}
		return true
	})
}

// typed sends a message of a type.
func typed(t *testing.T, c *control.Conn, typ uint16, tid uint64) {
	t.Helper()
	m := numbered(tid, control.NewMessage(typ, nil, nil))
	must(t, c.Send(m))
}

// A test that waits for the chance of a delay would take long: this clock has every
// timer that could be one fire at once, and keeps how long it would have been.
type hastyClock struct {
	control.MachineClock
	most time.Duration
	mu   sync.Mutex
	took []time.Duration // guarded by mu
}

func (c *hastyClock) AfterFunc(d time.Duration, f func()) func() bool {
	if d > c.most {
		return c.MachineClock.AfterFunc(d, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, d)
	return c.MachineClock.AfterFunc(0, f)
}

func (c *hastyClock) delays() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.took)
}

func TestHandshakesAreDelayedBySeed(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		dial := func(seed uint64) []time.Duration {
			clock := &hastyClock{most: time.Millisecond}
			server := nodeOf(t, v, "osd.1", "SLS", 1)
			client := nodeOf(t, v, "client.2", "LC", 2, func(c *nodetest.NodeConfig) {
				c.Clock, c.Diagnostics.Inject = clock, control.Inject{Seed: seed, Handshakes: control.Delay{Probability: 0.5, Max: clock.most}}
			})
			must(t, client.Dial(server).WaitReady(ctx))
			return clock.delays()
		}
		one, again, other := dial(1), dial(1), dial(3)
		if len(one) == 0 || !slices.Equal(one, again) || slices.Equal(one, other) {
			t.Errorf("%v, then %v, with another seed %v", one, again, other)
		}
	})
}

func TestMessagesAreDelayedBySeedAndKeepTheirOrder(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		const n = 20
		send := func(seed uint64) []time.Duration {
			clock := &hastyClock{most: time.Millisecond}
			server := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) {
				c.Clock, c.Diagnostics.Inject = clock, control.Inject{Seed: seed, Messages: control.Delay{Probability: 0.5, Max: clock.most}}
			})
			conn := nodeOf(t, v, "osd.2", "LP", 2).Dial(server)
			var want []uint64
			for i := range uint64(n) {
				typed(t, conn, 7, i+1)
				want = append(want, i+1)
				receives(t, ctx, server, want...)
			}
			return clock.delays()
		}
		one, again, other := send(1), send(1), send(3)
		if len(one) == 0 || len(one) == n || !slices.Equal(one, again) || slices.Equal(one, other) {
			t.Errorf("%v, then %v, with another seed %v", one, again, other)
		}
	})
}

func TestADelayedMessageWaitsForThePauseOfTheUser(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		clock := &hastyClock{most: time.Millisecond}
		server := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) {
			c.Clock, c.Diagnostics.Inject = clock, control.Inject{Seed: 1, Messages: control.Delay{Probability: 1, Max: clock.most}}
		})
		conn := nodeOf(t, v, "osd.2", "LP", 2).Dial(server)
		typed(t, conn, 1, 1)
		receives(t, ctx, server, 1)
		theirs := first(t, ctx, server)
		theirs.Pause()
		typed(t, conn, 1, 2)
		typed(t, conn, 1, 3)
		eventually(t, ctx, "the pause", func() bool { return connStats(t, theirs).IO.Paused })
		control.Unhold(theirs) // a delay ends now
		if st, err := theirs.Stats(); err != nil || !st.IO.Paused {
			t.Errorf("a delay has ended the pause: %v", err)
		}
		theirs.Resume()
		receives(t, ctx, server, 1, 2, 3)
	})
}
