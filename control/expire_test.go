package control_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
)

// strandedClients connects n clients, and loses them all.
func strandedClients(t *testing.T, ctx context.Context, v variant, server *nodetest.Node, n int) {
	t.Helper()
	for i := range n {
		client := nodeOf(t, v, "client.1", "LLC", uint32(i+10))
		send(t, client.Dial(server), uint64(i))
		eventually(t, ctx, "its message", func() bool { return len(server.Inbox.Messages()) == i+1 })
		end(t, client.Messenger)
	}
}

func anHour(d time.Duration) bool { return d == time.Hour }

func withAge(age time.Duration, resets *atomic.Int64) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) {
		p := control.StatefulServer()
		p.StandbyAge = age
		c.Default = &p
		c.Chain = append(c.Chain, &control.Dispatcher{Reset: func(*control.Conn, bool) { resets.Add(1) }})
	}
}

func TestSessionsOfClientsThatAreGoneEnd(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		var resets atomic.Int64
		began := time.Now()
		clock := &pressedClock{}
		server := nodeOf(t, v, "osd.0", "SFS", 1, withAge(time.Hour, &resets), clock.of)
		strandedClients(t, ctx, v, server, 3)
		eventually(t, ctx, "their wait", func() bool { return statsOf(t, server.Messenger).Standby == 3 })
		conns := server.Conns()
		for _, c := range conns {
			if st, err := c.Stats(); err != nil || st.LastSeen.Before(began) || st.LastSeen.After(time.Now()) {
				t.Errorf("seen at %v, %v", st.LastSeen, err)
			}
		}
		if st := statsOf(t, server.Messenger); st.Counters.Expired != 0 {
			t.Errorf("too early: %+v", st)
		}
		if n := clock.press(anHour); n != 3 {
			t.Fatalf("%d timers", n)
		}
		for _, c := range conns {
			<-c.Closed()
			if !errors.Is(c.Err(), control.ErrExpired) {
				t.Errorf("ended with %v", c.Err())
			}
		}
		if st := statsOf(t, server.Messenger); st.Standby != 0 || st.Counters.Expired != 3 || resets.Load() != 3 {
			t.Errorf("%d resets, %+v", resets.Load(), st)
		}
	})
}

func TestTheNumberOfSessionsThatWaitIsBounded(t *testing.T) {
	ctx := deadline(t)
	var resets atomic.Int64
	server := nodeOf(t, variants[0], "osd.0", "SFS", 1, withAge(0, &resets), func(c *nodetest.NodeConfig) { c.MaxStandby = 2 })
	strandedClients(t, ctx, variants[0], server, 5)
	eventually(t, ctx, "the end of the oldest", func() bool { return resets.Load() == 3 && statsOf(t, server.Messenger).Standby == 2 })
	left := server.Conns()
	if len(left) != 2 || left[0].ID() != 4 || left[1].ID() != 5 {
		t.Errorf("left are %d", len(left))
	}
}

// A client that comes back in time has its session, and the wait begins anew.
func TestASessionThatIsResumedDoesNotEnd(t *testing.T) {
	ctx := deadline(t)
	var resets atomic.Int64
	clock := &pressedClock{}
	server := nodeOf(t, variants[0], "osd.0", "SFS", 1, withAge(time.Hour, &resets), clock.of)
	client := nodeOf(t, variants[0], "client.1", "LLC", 2)
	conn := client.Dial(server)
	send(t, conn, 1)
	receives(t, ctx, server, 1)
	b := client.Probe.ArmNext(nodetest.MustPoint("MESSAGE_WRITE"), nodetest.Fault())
	send(t, conn, 2)
	client.Hit(ctx, b)
	receives(t, ctx, server, 1, 2)
	if n := clock.press(anHour); n != 0 {
		t.Errorf("%d sessions still wait", n)
	}
	send(t, conn, 3)
	receives(t, ctx, server, 1, 2, 3)
	if resets.Load() != 0 {
		t.Error("reset")
	}
}

// lateClock has timers of an hour that go off although they were stopped, as one does
// that fires at that moment.
type lateClock struct {
	pressedClock
	mu   sync.Mutex
	late []func() // guarded by mu
}

func (c *lateClock) AfterFunc(d time.Duration, f func()) func() bool {
	if anHour(d) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.late = append(c.late, f)
	}
	return c.pressedClock.AfterFunc(d, f)
}

func (c *lateClock) timers() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.late)
}

func TestTheTimerOfAnEarlierWaitEndsNoSession(t *testing.T) {
	ctx := deadline(t)
	var resets atomic.Int64
	clock := &lateClock{}
	server := nodeOf(t, variants[0], "osd.0", "SFS", 1, withAge(time.Hour, &resets), func(c *nodetest.NodeConfig) { c.Clock = clock })
	client := nodeOf(t, variants[0], "client.1", "LLC", 2)
	conn := client.Dial(server)
	send(t, conn, 1)
	receives(t, ctx, server, 1)
	away := client.Probe.ArmNext(nodetest.MustPoint("BANNER_WRITE"), nodetest.Stall())
	b := client.Probe.ArmNext(nodetest.MustPoint("MESSAGE_WRITE"), nodetest.Fault())
	send(t, conn, 2)
	client.Hit(ctx, b)
	waits := func(n int) {
		t.Helper()
		eventually(t, ctx, "a wait", func() bool { return len(clock.timers()) == n && statsOf(t, server.Messenger).Standby == 1 })
	}
	waits(1)
	away.Release()
	receives(t, ctx, server, 1, 2)
	end(t, client.Messenger)
	waits(2)
	for i, expired := range []uint64{0, 1} {
		clock.timers()[i]()
		if n := statsOf(t, server.Messenger).Counters.Expired; n != expired {
			t.Fatalf("%d sessions have ended behind timer %d, want %d", n, i+1, expired)
		}
	}
}
