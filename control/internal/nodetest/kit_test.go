package nodetest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var must = drivertest.Must

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func node(t *testing.T, name string, policy control.Policy) *nodetest.Node {
	n, err := wire.ParseEntityName(name)
	must(t, err)
	return nodetest.Start(t, nodetest.NodeConfig{Config: control.Config{Name: n, Default: &policy}})
}

// Matrix: OB-04, INV-05
func TestCheckTellsOfBreaksThatWereNotReached(t *testing.T) {
	p := nodetest.NewProbe()
	b := p.Arm(nodetest.Read(frame.TagWait), 3, nodetest.Fault())
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "fault at read WAIT #3") {
		t.Errorf("got %v", err)
	}
	b.Forget()
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Wait(ctx); err == nil {
		t.Error("a break that was not reached was waited for without an error")
	}
}

// raw opens a plain TCP connection to a node, reads its banner, and sends as
// much of one as brings it to BANNER_PAYLOAD_READ.
func raw(t *testing.T, n *nodetest.Node) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.Addr.AddrPort.String())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	banner := wire2.Banner{}.AppendTo(nil)
	if _, err := io.ReadFull(c, make([]byte, len(banner))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(banner[:wire2.BannerPrefixSize]); err != nil {
		t.Fatal(err)
	}
	return c
}

// Matrix: OB-06
func TestActionsAsThePeerSeesThem(t *testing.T) {
	ctx := patience(t)
	n := node(t, "osd.1", control.StatelessServer())
	rest := wire2.Banner{}.AppendTo(nil)[wire2.BannerPrefixSize:]
	wantEnd := func(c net.Conn, reset bool) {
		t.Helper()
		k, err := c.Read(make([]byte, 64))
		if k != 0 || err == nil || strings.Contains(err.Error(), "reset") != reset {
			t.Errorf("read %d bytes, %v; reset expected: %v", k, err, reset)
		}
	}
	at := nodetest.BannerPayloadRead()
	n.Probe.ArmNext(at, nodetest.Fault())
	wantEnd(raw(t, n), false)
	n.Probe.ArmNext(at, nodetest.Reset())
	wantEnd(raw(t, n), true)
	n.Probe.ArmNext(at, nodetest.HalfClose())
	hello := n.Probe.ArmNext(nodetest.Write(frame.TagHello), nodetest.Continue())
	c := raw(t, n)
	wantEnd(c, false)
	_, err := c.Write(rest)
	must(t, err)
	n.Hit(ctx, hello) // our bytes were read all the same
	for _, act := range []nodetest.Action{nodetest.Block(), nodetest.Delay(time.Millisecond), nodetest.Continue()} {
		b := n.Probe.ArmNext(at, act)
		c := raw(t, n)
		b.Release()
		_, err := c.Write(rest)
		must(t, err)
		if k, err := c.Read(make([]byte, 64)); err != nil || k == 0 {
			t.Errorf("%v: no HELLO: %v", act, err)
		}
		n.Hit(ctx, b)
	}
}

func TestPeerNamesTheFrameThatItDidNotExpect(t *testing.T) {
	ctx := patience(t)
	n := node(t, "osd.1", control.LosslessPeer())
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Addr: n.Addr.WithNonce(5)}, n.Addr)
	defer p.Close()
	p.Handshake()
	p.SendPayload(frame.TagClientIdent, p.ClientIdent(1, 1))
	p.ExpectReset()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "got SERVER_IDENT, want SESSION_RESET") {
		t.Errorf("got %v", err)
	}
}

// The peers of a node that is shut down do not come to another program's server.
func TestANodeKeepsItsPortUntilTheTestEnds(t *testing.T) {
	n := nodetest.Start(t, nodetest.NodeConfig{})
	must(t, n.Shutdown(t.Context()))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	// The kernel does not choose a port that this one cannot have.
	at := n.Addr.AddrPort
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("bound by somebody else: %v", err)
	}
}

func TestUntilEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		if err := msgrtest.Until(ctx, func() bool { return false }); !errors.Is(err, why) {
			t.Errorf("%v, want %v", err, why)
		}
		if err := msgrtest.Until(ctx, func() bool { return true }); err != nil {
			t.Errorf("what has happened: %v", err)
		}
	})
}
