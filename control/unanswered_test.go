package control_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
)

// Peers that are gone for good, to who dials them.

// givingUp is a client whose connections give up after an hour without an answer; 0: never.
func givingUp(t *testing.T, v variant, after time.Duration) (client *nodetest.Node, clock *handClock, log *logLines, resets *atomic.Int64) {
	clock, log, resets = newHandClock(), new(logLines), new(atomic.Int64)
	return nodeOf(t, v, "client.1", "LLC", 2, clock.of, func(c *nodetest.NodeConfig) {
		p := control.LosslessClient()
		p.GiveUpAfter = after
		c.Default, c.Logger = &p, slog.New(slog.NewTextHandler(log, nil))
		c.Chain = append(c.Chain, &control.Dispatcher{Reset: func(*control.Conn, bool) { resets.Add(1) }})
	}), clock, log, resets
}

const noAnswer = `msg="the peer does not answer"`

// lost waits until the connection dials again, and returns since when.
func lost(t *testing.T, ctx context.Context, conn *control.Conn) (since time.Time) {
	t.Helper()
	eventually(t, ctx, "the loss", func() bool {
		since = conn.Info().Unanswered
		return !since.IsZero() && conn.State() == control.StateWait
	})
	return since
}

// Matrix: OB-11
func TestASessionToAPeerThatIsGoneSaysSinceWhenAndGivesUp(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.0", "SFS", 1)
		client, clock, log, resets := givingUp(t, v, time.Hour)
		conn := client.Dial(server)
		if err := conn.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		if since := conn.Info().Unanswered; !since.IsZero() || statsOf(t, client.Messenger).Unanswered != 0 {
			t.Errorf("a peer that is there does not answer since %v", since)
		}
		ends := map[error]chan error{control.ErrSessionLost: make(chan error, 1), control.ErrNotSent: make(chan error, 1)}
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
		since := lost(t, ctx, conn)
		go call(control.ErrNotSent)
		eventually(t, ctx, "the request that waits", held(1))
		if want := clock.Now(); !since.Equal(want) {
			t.Errorf("unanswered since %v, want %v", since, want)
		}
		for _, minutes := range []int{1, 10} {
			clock.pass(since.Add(time.Duration(minutes) * time.Minute).Sub(clock.Now()))
			st := statsOf(t, client.Messenger)
			if one, _ := conn.Stats(); st.Unanswered != 1 || st.UnansweredSeconds != 60*minutes || !one.Unanswered.Equal(since) || !conn.Info().Unanswered.Equal(since) {
				t.Errorf("behind %d minutes: %d for %d s, the connection since %v", minutes, st.Unanswered, st.UnansweredSeconds, one.Unanswered)
			}
		}
		if n := log.count(noAnswer); n != 2 || conn.State() == control.StateClosing {
			t.Errorf("%d lines in the log, state %v", n, conn.State())
		}
		clock.pass(time.Hour)
		<-conn.Closed()
		err := conn.Err()
		if !errors.Is(err, control.ErrUnanswered) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), server.Addr.AddrPort.String()) ||
			!strings.Contains(err.Error(), since.Format(time.RFC3339)) {
			t.Errorf("ended with %v", err)
		}
		for want, end := range ends {
			if err := <-end; !errors.Is(err, want) || !errors.Is(err, control.ErrUnanswered) {
				t.Errorf("a call ended with %v, want %v", err, want)
			}
		}
		if err := conn.Send(control.NewMessage(1, nil, nil)); !errors.Is(err, control.ErrClosed) || !errors.Is(err, control.ErrUnanswered) {
			t.Errorf("Send behind it: %v", err)
		}
		if st := statsOf(t, client.Messenger); resets.Load() != 1 || st.Unanswered != 0 || st.Counters.Expired != 1 {
			t.Errorf("%d resets, %d unanswered, %d expired", resets.Load(), st.Unanswered, st.Counters.Expired)
		}
	})
}

// A peer that was never there counts from Connect on; without a GiveUpAfter nobody gives up.
func TestWithoutAPolicyThatGivesUpAConnectionDialsForEver(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.0", "SFS", 1)
		end(t, server.Messenger)
		client, clock, log, resets := givingUp(t, v, 0)
		conn := client.Dial(server)
		since := lost(t, ctx, conn)
		for range 100 {
			clock.pass(time.Hour)
		}
		if n := log.count(noAnswer); n > 100 || n < 90 || resets.Load() != 0 || !conn.Info().Unanswered.Equal(since) {
			t.Errorf("%d lines in the log, %d resets, unanswered since %v, before %v", n, resets.Load(), conn.Info().Unanswered, since)
		}
	})
}

// The time counts anew for each loss.
func TestAPeerThatAnswersInTimeIsNotGivenUp(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.0", "SFS", 1)
		client, clock, log, resets := givingUp(t, v, time.Hour)
		conn := client.Dial(server)
		send(t, conn, 1)
		receives(t, ctx, server, 1)
		for i := range uint64(3) {
			b := client.Probe.ArmNext(nodetest.MustPoint("MESSAGE_WRITE"), nodetest.Fault())
			send(t, conn, i+2)
			client.Hit(ctx, b)
			eventually(t, ctx, "the message", func() bool { return len(server.Inbox.Messages()) == int(i)+2 })
			eventually(t, ctx, "the answer", func() bool { return conn.Info().Unanswered.IsZero() })
			clock.pass(59 * time.Minute)
		}
		if n := log.count(noAnswer); n != 0 || resets.Load() != 0 || conn.State() == control.StateClosing {
			t.Errorf("%d lines in the log, %d resets, state %v", n, resets.Load(), conn.State())
		}
	})
}
