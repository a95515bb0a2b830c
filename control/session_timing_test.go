package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Limits of time: of a handshake, of the pauses between attempts, of a peer
// that is slow or silent.

// The numbers of the real daemons.
const (
	firstBackoff, longestBackoff = 200 * time.Millisecond, 15 * time.Second
	daemonHandshake              = 10 * time.Second
)

// patient are the back-off numbers of the real daemons.
func patient(c *nodetest.NodeConfig) {
	c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = firstBackoff, longestBackoff
	c.Timeouts.Handshake = handshakeLimit
}

func isBackoff(d time.Duration) bool { return d <= longestBackoff }

// KA-04, the acceptor's side: one limit for the whole handshake, wherever the
// peer stops.
// Matrix: KA-04, HI-18, HI-19
func TestOneLimitForTheWholeHandshakeOfAnAcceptor(t *testing.T) {
	everyPoint(t, nodetest.HandshakePoints(nodetest.Connector)[1:10], func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
		clock := stillClock()
		s := playTo(t, ctx, v, "SFS", true, patient, clock.of)
		p := s.dial()
		p.HandshakeUntil(at)
		s.must(p)
		eventually(t, ctx, "the limit", func() bool { return clock.press(isHandshake) == 1 })
		p.ExpectEnd()
		s.must(p)
		if n := clock.press(isHandshake); n != 0 {
			t.Errorf("%d further limits", n)
		}
		eventually(t, ctx, "the failure", func() bool { return failures(s.node) == 1 })
		if st := statsOf(t, s.node); st.Counters.Accepted != 1 || st.Counters.Conns != 0 || st.HalfOpen != 0 {
			t.Errorf("%+v", st.Counters)
		}
	})
}

// The keepalive behind a large message leaves when the link has taken that. The peer is not silent meanwhile: a session
// would send the message again without end.
// Matrix: KA-05, KA-12
func TestAMessageThatTakesLongerThanTheKeepaliveLimitArrives(t *testing.T) {
	arrived := 0
	cfg := pair.Config{Serve: &control.Dispatcher{Fast: func(*control.Conn, *control.Message) bool { arrived++; return true }}}
	cfg.Network.Latency, cfg.Network.Window, cfg.Network.Segment = 100*time.Millisecond, 8<<10, 2<<10
	cfg.Client.Timeouts.KeepaliveEvery, cfg.Client.Timeouts.Keepalive = 5*time.Second, 15*time.Second
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		freed := make(chan dataplane.Outcome, 1)
		m := control.NewMessage(1, nil, make([]byte, 4<<20))
		m.Free = func(m *control.Message) { freed <- m.Outcome() }
		must(t, p.Conn.Send(m))
		select {
		case o := <-freed:
			if o != dataplane.OutcomeAcknowledged || arrived != 1 {
				t.Errorf("outcome %v, %d messages have come", o, arrived)
			}
		case <-time.After(10 * time.Minute):
			t.Error("the message has not arrived")
		}
		if n := connStats(t, p.Conn).Counters.Faults; n != 0 {
			t.Errorf("%d faults", n)
		}
	})
}

func isHandshake(d time.Duration) bool { return d == handshakeLimit }

// KA-04, the connector's side, and KA-07: the limit ends an attempt wherever the
// acceptor stops, in an address that swallows everything too, and a pause
// follows.
// Matrix: KA-04, KA-07
func TestOneLimitForTheWholeHandshakeOfAConnector(t *testing.T) {
	points := append(nodetest.HandshakePoints(nodetest.Acceptor)[1:10], nodetest.SocketConnecting())
	everyPoint(t, points, func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
		clock := stillClock()
		to, stop := swallow(t), func() {}
		if at != nodetest.SocketConnecting() {
			l := hold(t, loopback(0))
			to, stop = wire.Addr{Type: wire.AddrMsgr2, AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}, func() {
				p := acceptPeer(t, ctx, l, msgrtest.PeerConfig{Name: osd("2"), Rev0: v.rev0})
				p.HandshakeUntil(at)
				check(t, p.Err())
			}
		}
		node := nodeOf(t, v, "client.1", "LLC", 1, patient, clock.of, func(c *nodetest.NodeConfig) {
			c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = time.Hour, time.Hour
		})
		conn := connect(t, node, to, wire.OSD)
		stop()
		eventually(t, ctx, "the limit", func() bool { return clock.press(isHandshake) == 1 })
		eventually(t, ctx, "the pause", func() bool { return conn.State() == control.StateWait })
		if n := connStats(t, conn).Counters; n.Attempts != 1 || n.Ready != 0 || conn.Err() == nil {
			t.Errorf("%+v, %v", n, conn.Err())
		}
	})
}

// swallow is an address that answers nothing.
func swallow(t *testing.T) wire.Addr {
	t.Helper()
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: drivertest.FullListener(t, t.Cleanup)}
}

// Connections that wait for their turn are not held up by that when they end, and those to
// another address are not at all.
func TestDialsBeyondTheBoundWaitUntilOthersAreDone(t *testing.T) {
	overVariants(t, slices.Concat(newest, msgr1Variants), func(t *testing.T, ctx context.Context, v variant) {
		client := nodeOf(t, v, "client.1", "LLC", 1, func(c *nodetest.NodeConfig) { c.Timeouts.Handshake = time.Hour })
		other := nodeOf(t, v, "osd.2", "SFS", 2)
		to := swallow(t).WithType(other.Addr.Type)
		dialled := func(n int) {
			t.Helper()
			eventually(t, ctx, fmt.Sprint(n, " dials"),
				func() bool { return client.Probe.Seen(nodetest.SocketConnecting()) == n })
		}
		var conns []*control.Conn
		for range sessions.DialsAtOnce + 10 {
			conns = append(conns, connect(t, client, to, wire.OSD, control.Anonymous(), control.Once()))
		}
		dialled(sessions.DialsAtOnce)
		must(t, client.Dial(other).WaitReady(ctx))
		dialled(sessions.DialsAtOnce + 1)
		for _, c := range conns {
			c.MarkDown()
		}
		for _, c := range conns {
			arrives(t, "the end of the connection", c.Closed())
		}
	})
}

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
		clock := &testClock{}
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
		pressed := 0
		eventually(t, ctx, "their timers", func() bool { pressed += clock.press(anHour); return pressed == 3 })
		for _, c := range conns {
			<-c.Closed()
			wantError(t, "ended", c.Err(), control.ErrExpired)
		}
		if st := statsOf(t, server.Messenger); st.Standby != 0 || st.Counters.Expired != 3 || resets.Load() != 3 {
			t.Errorf("%d resets, %+v", resets.Load(), st)
		}
	})
}

// Peers that are gone for good, to who dials them.

// givingUp is a client whose connections give up after a time without an answer, 0: never.
func givingUp(t *testing.T, v variant, after time.Duration) (client *nodetest.Node, clock *testClock, log *logText, resets *atomic.Int64) {
	clock, log, resets = stillClock(), new(logText), new(atomic.Int64)
	return nodeOf(t, v, "client.1", "LLC", 2, clock.of, func(c *nodetest.NodeConfig) {
		p := control.LosslessClient()
		p.GiveUpAfter = after
		c.Default, c.Logger = &p, slog.New(slog.NewTextHandler(log, nil))
		c.Chain = append(c.Chain, &control.Dispatcher{Reset: func(*control.Conn, bool) { resets.Add(1) }})
	}), clock, log, resets
}

const noAnswer = `msg="the peer does not answer"`

// lost waits until the connection is about to dial again, and returns since when it dials.
func lost(t *testing.T, ctx context.Context, conn *control.Conn, clock *testClock) (since time.Time) {
	t.Helper()
	eventually(t, ctx, "the loss", func() bool {
		since = conn.Info().Unanswered
		return !since.IsZero() && conn.State() == control.StateWait && clock.waiting(isBackoff)
	})
	return since
}

// Matrix: OB-11
func TestASessionToAPeerThatIsGoneSaysSinceWhenAndGivesUp(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.0", "SFS", 1)
		client, clock, log, resets := givingUp(t, v, time.Hour)
		conn := client.Dial(server)
		must(t, conn.WaitReady(ctx))
		eventually(t, ctx, "a peer that has answered", func() bool {
			return conn.Info().Unanswered.IsZero() && statsOf(t, client.Messenger).Unanswered == 0
		})
		ends := map[error]chan error{control.ErrSessionLost: make(chan error, 1),
			control.ErrNotSent: make(chan error, 1)}
		call := func(want error) {
			_, err := conn.Call(ctx, control.NewMessage(1, nil, nil))
			ends[want] <- err
		}
		go call(control.ErrSessionLost)
		held := func(n int) func() bool {
			return func() bool { st, err := conn.Stats(); return err == nil && st.IO.Queued+st.IO.Sent == n }
		}
		eventually(t, ctx, "the request", func() bool { return len(server.Inbox.Messages()) == 1 })
		eventually(t, ctx, "its ack", held(0))
		clock.pass(time.Second)
		end(t, server.Messenger)
		since := lost(t, ctx, conn, clock)
		go call(control.ErrNotSent)
		eventually(t, ctx, "the request that waits", held(1))
		if want := clock.Now(); !since.Equal(want) {
			t.Errorf("unanswered since %v, want %v", since, want)
		}
		for i, minutes := range []int{1, 10} {
			dials := client.Probe.Seen(nodetest.SocketConnecting())
			clock.pass(since.Add(time.Duration(minutes) * time.Minute).Sub(clock.Now()))
			// An attempt under way would run into its bound when more time passes.
			eventually(t, ctx, "the end of another attempt, and a line in the log", func() bool {
				return client.Probe.Seen(nodetest.SocketConnecting()) > dials && conn.State() == control.StateWait && clock.waiting(isBackoff) &&
					log.count(noAnswer) == i+1
			})
			st := statsOf(t, client.Messenger)
			if one, _ := conn.Stats(); st.Unanswered != 1 || st.UnansweredSeconds != 60*minutes ||
				!one.Unanswered.Equal(since) || !conn.Info().Unanswered.Equal(since) {
				t.Errorf("behind %d minutes: %d for %d s, the connection since %v", minutes, st.Unanswered,
					st.UnansweredSeconds, one.Unanswered)
			}
		}
		clock.pass(50 * time.Minute)
		arrives(t, "the end of the connection", conn.Closed())
		err := conn.Err()
		if !errors.Is(err, control.ErrUnanswered) || !errors.Is(err, syscall.ECONNREFUSED) ||
			!strings.Contains(err.Error(), server.Addr.AddrPort.String()) ||
			!strings.Contains(err.Error(), since.Format(time.RFC3339)) {
			t.Errorf("ended with %v", err)
		}
		for want, end := range ends {
			wantError(t, "a call ended", <-end, want, control.ErrUnanswered)
		}
		err = conn.Send(control.NewMessage(1, nil, nil))
		wantError(t, "Send behind it", err, control.ErrClosed, control.ErrUnanswered)
		if st := statsOf(t, client.Messenger); resets.Load() != 1 || st.Unanswered != 0 || st.Counters.Expired != 1 {
			t.Errorf("%d resets, %d unanswered, %d expired", resets.Load(), st.Unanswered, st.Counters.Expired)
		}
	})
}

func TestWithoutAPolicyThatGivesUpAConnectionDialsForEver(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.0", "SFS", 1)
		end(t, server.Messenger)
		client, clock, log, _ := givingUp(t, v, 0)
		conn := client.Dial(server)
		since := lost(t, ctx, conn, clock)
		for n := range 5 {
			clock.pass(time.Hour)
			eventually(t, ctx, "the line of this hour", func() bool { return log.count(noAnswer) == n+1 })
		}
		if got := conn.Info().Unanswered; !got.Equal(since) || conn.State() == control.StateClosing {
			t.Errorf("state %v, unanswered since %v, before %v", conn.State(), got, since)
		}
	})
}
