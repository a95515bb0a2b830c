package control_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Who may be half open, as sockets see it.

// silence opens n sockets from an address that never say anything, one after
// the other. They are closed when the test ends.
func silence(t *testing.T, ctx context.Context, from string, to netip.AddrPort, n int) []net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	var list []net.Conn
	for range n {
		c, err := d.DialContext(ctx, "tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		list = append(list, c)
	}
	return list
}

// doorStats are the statistics of a messenger once so many sockets have come.
func doorStats(t *testing.T, ctx context.Context, m *control.Messenger, accepted uint64) (st control.Stats) {
	t.Helper()
	eventually(t, ctx, "the sockets", func() bool {
		var err error
		st, err = m.Stats()
		return err != nil || st.Counters.Accepted >= accepted
	})
	return st
}

func halfOpen(n int) func(*msgrtest.NodeConfig) {
	return func(c *msgrtest.NodeConfig) { c.HalfOpen = n }
}

// Matrix: RL-02
func TestSilentSocketsDoNotShutHonestPeersOut(t *testing.T) {
	for _, from := range []string{"127.0.0.1", "127.0.1.66"} {
		t.Run(from, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				const bound, honest = 64, 20
				server := nodeOf(t, v, "osd.1", "SLS", 1, halfOpen(bound))
				silence(t, ctx, from, server.Addr.AddrPort, 2*bound)
				eventually(t, ctx, "those that were evicted to be gone", func() bool {
					return doorStats(t, ctx, server.Messenger, 2*bound).HalfOpen == bound/2+1
				})
				client := nodeOf(t, v, "client.2", "LC", 2)
				for i := range honest {
					c := client.Dial(server, control.Anonymous(), control.Once())
					if err := c.WaitReady(ctx); err != nil {
						t.Fatalf("honest peer %d: %v", i, err)
					}
				}
			})
		})
	}
}

func TestSilentSocketsDoNotPushOutAHandshakeThatProgresses(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const bound = 64
		server := nodeOf(t, v, "osd.1", "SLS", 1, halfOpen(bound))
		client := nodeOf(t, v, "client.2", "LC", 2)
		b := client.Probe.Arm(msgrtest.Write(frame.TagAuthRequest), 1, msgrtest.Block())
		c := client.Dial(server, control.Once())
		client.Hit(ctx, b)
		eventually(t, ctx, "the server to read HELLO", func() bool { return server.Probe.Seen(msgrtest.Read(frame.TagHello)) == 1 })
		silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, 3*bound)
		doorStats(t, ctx, server.Messenger, 1+3*bound)
		b.Release()
		if err := c.WaitReady(ctx); err != nil {
			t.Error(err)
		}
	})
}

// logLines counts lines by their message.
type logLines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logLines) count(msg string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.out.Bytes(), []byte(msg))
}

// stillClock has timers, and a time that does not pass.
type stillClock struct{ at time.Time }

func (c stillClock) Now() time.Time { return c.at }

func (c stillClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// Matrix: HI-30, AIM-06
func TestRefusedSocketsWriteTenLinesAMinute(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const n = 40
		var log logLines
		server := nodeOf(t, v, "osd.1", "SLS", 1, halfOpen(1), func(c *msgrtest.NodeConfig) {
			c.Logger, c.Clock = slog.New(slog.NewTextHandler(&log, nil)), stillClock{time.Unix(1_000_000, 0)}
		})
		client := nodeOf(t, v, "client.2", "LC", 2)
		b := client.Probe.Arm(msgrtest.Write(frame.TagAuthRequest), 1, msgrtest.Block())
		c := client.Dial(server, control.Once())
		client.Hit(ctx, b)
		eventually(t, ctx, "the server to read HELLO", func() bool { return server.Probe.Seen(msgrtest.Read(frame.TagHello)) == 1 })
		for _, s := range silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, n) {
			if _, err := s.Read(make([]byte, 1)); err == nil {
				t.Error("a socket without a place was sent something")
			}
		}
		st := doorStats(t, ctx, server.Messenger, 1+n)
		if st.Counters.Door.Source != n {
			t.Errorf("%+v", st.Counters.Door)
		}
		eventually(t, ctx, "the lines", func() bool { return log.count("accepted socket refused") >= 10 })
		b.Release()
		if err := c.WaitReady(ctx); err != nil {
			t.Error(err)
		}
		if got := log.count("accepted socket refused"); got != 10 {
			t.Errorf("%d lines", got)
		}
	})
}
