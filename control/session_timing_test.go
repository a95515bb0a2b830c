package control_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
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
	c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff, c.Timeouts.Handshake = firstBackoff, longestBackoff, handshakeLimit
}

func isBackoff(d time.Duration) bool { return d <= longestBackoff }

// Attempts that fail at once are 0.2 s apart, then
// twice as long, up to 15 s, for an hour; success begins anew, and a session
// that is lost with work to do is dialled at once.
// Matrix: SE-39, SE-40, SE-42, KA-08
func TestBackoffDoublesToItsLimitAndSuccessResetsIt(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var clock pressedClock
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
		connector := nodeOf(t, v, "client.2", "LLC", 2, patient, clock.of)
		const failures = 250 // times 15 s: an hour
		for nth := 1; nth <= failures; nth++ {
			connector.Probe.Arm(nodetest.SocketConnecting(), nth, nodetest.Fault())
		}
		conn := connector.Dial(acceptor)
		send(t, conn, 1)
		eventually(t, ctx, "the session", func() bool {
			clock.press(isBackoff)
			return conn.State() == control.StateReady
		})
		receives(t, ctx, acceptor, 1)
		got := clock.pressed()
		if len(got) != failures {
			t.Fatalf("%d pauses, want %d", len(got), failures)
		}
		want := firstBackoff
		for i, d := range got {
			if d != want {
				t.Fatalf("pause %d is %v, want %v", i, d, want)
			}
			want = min(2*want, longestBackoff)
		}
		// The session is lost, and the first attempt to resume it, too.
		connector.Probe.ArmNext(nodetest.Write(frame.TagMessage), nodetest.Fault())
		connector.Probe.Arm(nodetest.SocketConnecting(), failures+2, nodetest.Fault())
		send(t, conn, 2)
		eventually(t, ctx, "one pause", func() bool { return clock.press(isBackoff) == 1 })
		receives(t, ctx, acceptor, 1, 2)
		if last := clock.pressed()[failures:]; !slices.Equal(last, []time.Duration{firstBackoff}) {
			t.Errorf("pauses %v behind a success", last)
		}
		connector.Await(ctx, fmt.Sprintf("established C(%d,1,1,2)", failures+3))
	})
}

// KA-04, the acceptor's side: one limit for the whole handshake, wherever the
// peer stops.
// Matrix: KA-04, HI-18, HI-19
func TestOneLimitForTheWholeHandshakeOfAnAcceptor(t *testing.T) {
	all := ""
	for _, p := range nodetest.HandshakePoints(nodetest.Connector)[1:10] {
		all += " " + nodetest.PointName(p)
	}
	everyPoint(t, all, func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
		var clock pressedClock
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
		s.node.Await(ctx, "closed A(1,0,0,0)")
	})
}

func isHandshake(d time.Duration) bool { return d == handshakeLimit }

// KA-04, the connector's side, and KA-07: the limit ends an attempt wherever the
// acceptor stops, in an address that swallows everything too, and a pause
// follows.
// Matrix: KA-04, KA-07
func TestOneLimitForTheWholeHandshakeOfAConnector(t *testing.T) {
	all := "SOCKET_CONNECTING"
	for _, p := range nodetest.HandshakePoints(nodetest.Acceptor)[1:10] {
		all += " " + nodetest.PointName(p)
	}
	everyPoint(t, all, func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
		var clock pressedClock
		to, stop := swallow(t), func() {}
		if at != nodetest.SocketConnecting() {
			l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Rev0: v.rev0})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }() // the test is over
			to, stop = l.Addr, func() {
				p := l.Accept(ctx)
				t.Cleanup(p.Close)
				p.HandshakeUntil(at)
				if err := p.Err(); err != nil {
					t.Error(err)
				}
			}
		}
		node := nodeOf(t, v, "client.1", "LLC", 1, patient, clock.of, func(c *nodetest.NodeConfig) {
			c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = time.Hour, time.Hour
		})
		conn, err := node.Connect(to, wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		eventually(t, ctx, "the limit", func() bool { return clock.press(isHandshake) == 1 })
		node.Await(ctx, "wait C(1,0-1,0,0)")
		if conn.Err() == nil {
			t.Error("no reason is given")
		}
	})
}

// swallow is an address that answers nothing: its queue of connections is full.
func swallow(t *testing.T) wire.Addr {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing is left to be told
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := loopback(uint16(sa.(*unix.SockaddrInet4).Port))
	filler, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = filler.Close() })
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(at.Addr(), at.Port())}
}
