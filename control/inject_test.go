package control_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
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

// Over sockets one operation in thirty of which fails, with handshakes and dispatches that take
// their time, and throttles that a few messages fill, every message comes once and in order, and
// its echo, too. Nothing is held in the end.
// Matrix: FT-32, V1-10
func TestInjectedFailuresLoseNoMessage(t *testing.T) {
	seed := seedOfSample(t)
	t.Logf("RINGMSGR_SAMPLE=%d", seed)
	overVariants(t, slices.Concat(newest, msgr1Variants), func(t *testing.T, ctx context.Context, v variant) {
		inject := func(n uint64) control.Inject {
			return control.Inject{
				Seed: seed*1000 + n + 1, SocketFailures: 30, Handshakes: control.Delay{Probability: 0.05, Max: 5 * time.Millisecond},
				Messages: control.Delay{Probability: 0.1, Max: 5 * time.Millisecond},
			}
		}
		server := nodeOf(t, v, "osd.1", "LP", 1, withChain(echoAll()), injects(inject(0)), tightly)
		var streams []*stream
		for i := range injectedStreams() {
			cfg := clientOf(v.backend, osd(fmt.Sprint(2+i)), control.LosslessPeer())
			v.configure(&cfg)
			cfg.Diagnostics.Inject = inject(uint64(1 + i))
			streams = append(streams, oneStream(t, cfg, server.Addr))
		}
		var faults uint64
		for _, s := range streams {
			s.run()
		}
		for _, s := range streams {
			s.progress(100)
			s.end()
			faults += connStats(t, s.c).Counters.Faults
		}
		if faults == 0 {
			t.Error("no socket has failed")
		}
		holdsNothing(t, ctx, server)
	})
}

func injectedStreams() int {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return 50
	}
	return 2
}

// tightly has all connections of a node share throttles that a few messages fill.
func tightly(c *nodetest.NodeConfig) {
	c.Default.Messages, c.Default.Bytes, c.Receiving.Bytes = loop.NewThrottle(8), loop.NewThrottle(20_000), 30_000
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

func TestDelaysComeBySeedAndMessagesKeepTheirOrder(t *testing.T) {
	const n = 20
	half := control.Delay{Probability: 0.5, Max: time.Millisecond}
	for what, inject := range map[string]control.Inject{"handshakes": {Handshakes: half}, "messages": {Messages: half}} {
		t.Run(what, func(t *testing.T) {
			everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
				delays := func(seed uint64) []time.Duration {
					clock, inject := &hastyClock{most: half.Max}, inject
					inject.Seed = seed
					server := nodeOf(t, v, "osd.1", "LP", 1, injects(inject), func(c *nodetest.NodeConfig) { c.Clock = clock })
					conn := nodeOf(t, v, "osd.2", "LP", 2).Dial(server)
					var want []uint64
					for tid := range uint64(n) {
						send(t, conn, tid)
						want = append(want, tid)
						receives(t, ctx, server, want...)
					}
					return clock.delays()
				}
				one, again, other := delays(1), delays(1), delays(3)
				if len(one) == 0 || len(one) == n || !slices.Equal(one, again) || slices.Equal(one, other) {
					t.Errorf("%v, then %v, with another seed %v", one, again, other)
				}
			})
		})
	}
}

func TestADelayedMessageWaitsForThePauseOfTheUser(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		clock := &hastyClock{most: time.Millisecond}
		server := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) {
			c.Clock, c.Diagnostics.Inject = clock, control.Inject{Seed: 1, Messages: control.Delay{Probability: 1, Max: clock.most}}
		})
		conn := nodeOf(t, v, "osd.2", "LP", 2).Dial(server)
		send(t, conn, 1)
		receives(t, ctx, server, 1)
		theirs := first(t, ctx, server)
		theirs.Pause()
		send(t, conn, 2)
		send(t, conn, 3)
		eventually(t, ctx, "the pause", func() bool { return connStats(t, theirs).IO.Paused })
		control.Unhold(theirs) // a delay ends now
		if st, err := theirs.Stats(); err != nil || !st.IO.Paused {
			t.Errorf("a delay has ended the pause: %v", err)
		}
		theirs.Resume()
		receives(t, ctx, server, 1, 2, 3)
	})
}
