package nodetest_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
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
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// must ends the test by an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func node(t *testing.T, name string, policy control.Policy, backend uring.Backend) *nodetest.Node {
	n, err := wire.ParseEntityName(name)
	must(t, err)
	return nodetest.Start(t, nodetest.NodeConfig{Config: control.Config{
		Name: n, Default: &policy, Plane: loop.Config{Driver: uring.Config{Backend: backend}},
	}})
}

func everyBackend(t *testing.T, run func(t *testing.T, ctx context.Context, backend uring.Backend)) {
	for _, b := range []uring.Backend{uring.Auto, uring.Epoll} {
		t.Run(string(b), func(t *testing.T) {
			nodetest.CheckLeaks(t)
			run(t, patience(t), b)
		})
	}
}

// Matrix: OB-05
func TestPointNamesAreReversible(t *testing.T) {
	all := []nodetest.Point{
		nodetest.SocketConnecting(), nodetest.SocketAccepted(), nodetest.BannerWrite(), nodetest.BannerRead(), nodetest.BannerPayloadRead(),
	}
	for tag := frame.TagHello; tag.Known(); tag++ {
		all = append(all, nodetest.Write(tag), nodetest.Read(tag))
	}
	seen := map[string]bool{}
	for _, p := range all {
		name := nodetest.PointName(p)
		if got, err := nodetest.ParsePoint(name); err != nil || got != p || seen[name] {
			t.Errorf("%q: %v %v", name, got, err)
		}
		seen[name] = true
	}
	if len(seen) != 5+2*22 {
		t.Errorf("%d points", len(seen))
	}
	for _, bad := range []string{"", "HELLO", "_READ", "HELLO_WROTE", "hello_read", "tag 99_READ"} {
		if p, err := nodetest.ParsePoint(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
}

// Matrix: OB-04
func TestAwaitComparesEveryNumber(t *testing.T) {
	everyBackend(t, func(t *testing.T, ctx context.Context, backend uring.Backend) {
		a := node(t, "osd.1", control.LosslessPeer(), backend)
		b := node(t, "osd.2", control.LosslessPeer(), backend)
		b.Dial(a)
		b.Await(ctx, "established C(1,1,0,1)")
		short, cancel := context.WithCancel(ctx)
		cancel()
		for _, good := range []string{"established|closed C(1,*,0-1,1+)", "established C(1,1,0,1) A(0,0,0,0) R(0,0)"} {
			if err := b.Probe.Await(ctx, good); err != nil {
				t.Error(err)
			}
		}
		for _, bad := range []string{
			"closed C(1,1,0,1)", "established C(2,1,0,1)", "established C(1,0,0,1)", "established C(1,1,1,1)", "established C(1,1,0,2+)",
			"established C(1,1,0,1) A(1,0,0,0)", "established C(1,1,0,1) R(1,0)", "established",
		} {
			if err := b.Probe.Await(short, bad); err == nil {
				t.Errorf("%q matches", bad)
			}
		}
		for _, wrong := range []string{"", "closed X(1)", "closed C(1,2)", "closed C(a,0,0,0)", "closed C"} {
			if err := b.Probe.Await(ctx, wrong); err == nil || !strings.Contains(err.Error(), "nodetest") {
				t.Errorf("%q: %v", wrong, err)
			}
		}
		if err := b.Probe.Await(short, "established C(1,1,0,1)", "closed A(1,0,0,0)"); err == nil {
			t.Error("two lines match one object")
		}
	})
}

// Matrix: OB-04
func TestASessionSurvivesAFault(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	serverPolicy, clientPolicy := control.StatefulServer(), control.LosslessClient()
	server := nodetest.Start(t, nodetest.NodeConfig{Config: control.Config{Default: &serverPolicy}})
	client := nodetest.Start(t, nodetest.NodeConfig{
		Config:  control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Default: &clientPolicy},
		Unbound: true,
	})

	// The TCP connection ends before the server has read the second message.
	server.Probe.Arm(nodetest.Read(frame.TagMessage), 2, nodetest.Fault())
	conn := client.Dial(server)
	for tid := range uint64(3) {
		m := control.NewMessage(1000, []byte("hello"), nil)
		m.TID = tid
		if err := conn.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Inbox.Await(ctx, 0, 1, 2); err != nil {
		t.Fatal(err) // each message arrives once and in order
	}
	client.Await(ctx, "established C(2,1,1,2)") // 2 dials, 1 CLIENT_IDENT, 1 SESSION_RECONNECT, ready twice
}

// Matrix: OB-04, INV-05
func TestCheckTellsOfBreaksThatWereNotReached(t *testing.T) {
	p := nodetest.NewProbe()
	b := p.Arm(nodetest.Read(frame.TagWait), 3, nodetest.Fault())
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "fault at WAIT_READ #3") {
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
	everyBackend(t, func(t *testing.T, ctx context.Context, backend uring.Backend) {
		n := node(t, "osd.1", control.StatelessServer(), backend)
		rest := wire2.Banner{}.AppendTo(nil)[wire2.BannerPrefixSize:]
		wantEnd := func(c net.Conn, reset bool) {
			t.Helper()
			k, err := c.Read(make([]byte, 64))
			if k != 0 || err == nil || strings.Contains(err.Error(), "reset") != reset {
				t.Errorf("read %d bytes, %v; reset expected: %v", k, err, reset)
			}
		}
		// write sends the rest of the banner, and the peer goes on.
		write := func(c net.Conn, goesOn bool) {
			t.Helper()
			if _, err := c.Write(rest); err != nil {
				t.Error(err)
			}
			if goesOn {
				if k, err := c.Read(make([]byte, 64)); err != nil || k == 0 {
					t.Errorf("no HELLO: %v", err)
				}
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
		write(c, false)
		n.Hit(ctx, hello) // our bytes were read all the same
		b := n.Probe.ArmNext(at, nodetest.Stall())
		c = raw(t, n)
		write(c, false)
		wantEnd(c, false)
		n.Hit(ctx, b)
		b.Release()
		for _, act := range []nodetest.Action{nodetest.Block(), nodetest.Silence(), nodetest.Delay(time.Millisecond), nodetest.Continue()} {
			b := n.Probe.ArmNext(at, act)
			c := raw(t, n)
			b.Release()
			write(c, true)
			n.Hit(ctx, b)
		}
	})
}

func TestDataPhaseGoesOnBehindDelayBlockAndSilence(t *testing.T) {
	everyBackend(t, func(t *testing.T, ctx context.Context, backend uring.Backend) {
		a := node(t, "osd.1", control.LosslessPeer(), backend)
		b := node(t, "osd.2", control.LosslessPeer(), backend)
		conn := b.Dial(a)
		tid := uint64(0)
		var want []uint64
		for _, end := range []*nodetest.Node{a, b} {
			at := nodetest.Write(frame.TagMessage)
			if end == a {
				at = nodetest.Read(frame.TagMessage)
			}
			for _, act := range []nodetest.Action{nodetest.Delay(time.Millisecond), nodetest.Block(), nodetest.Silence(), nodetest.Continue()} {
				br := end.Probe.ArmNext(at, act)
				for range 3 {
					tid++
					want = append(want, tid)
					m := control.NewMessage(1, nil, nil)
					m.TID = tid
					must(t, conn.Send(m))
				}
				end.Hit(ctx, br)
				br.Release()
				if err := a.Inbox.Await(ctx, want...); err != nil {
					t.Fatalf("%v: %v", act, err)
				}
			}
		}
		b.Await(ctx, "established C(1,1,0,1)")
	})
}

// Matrix: OB-05
func TestPeerCanStopAnywhereInAHandshake(t *testing.T) {
	everyBackend(t, func(t *testing.T, ctx context.Context, backend uring.Backend) {
		n := node(t, "osd.1", control.StatelessServer(), backend)
		cfg := msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Client, ID: "x"}, Addr: wire.Addr{Type: wire.AddrMsgr2}}
		points := nodetest.HandshakePoints(nodetest.Connector)
		for _, at := range points[1 : len(points)-2] {
			p := msgrtest.DialPeer(ctx, cfg, n.Addr)
			p.HandshakeUntil(at)
			if err := p.Err(); err != nil {
				t.Errorf("%s: %v", nodetest.PointName(at), err)
			}
			p.HalfClose()
			p.ExpectEnd()
			if err := p.Err(); err != nil {
				t.Errorf("%s: %v", nodetest.PointName(at), err)
			}
			p.Close()
		}
		p := msgrtest.DialPeer(ctx, cfg, n.Addr)
		p.HandshakeUntil(nodetest.Write(frame.TagClientIdent))
		if p.Err() == nil {
			t.Error("a point behind the handshake was reached in it")
		}
		p.Reset()
		p.Send(frame.TagClientIdent, nil)
		if f := p.Next(); f.Tag != 0 {
			t.Errorf("a script that has ended reads %v", f.Tag)
		}
	})
}

func TestPeerNamesTheFrameThatItDidNotExpect(t *testing.T) {
	everyBackend(t, func(t *testing.T, ctx context.Context, backend uring.Backend) {
		n := node(t, "osd.1", control.LosslessPeer(), backend)
		p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Addr: n.Addr.WithNonce(5)}, n.Addr)
		defer p.Close()
		p.Handshake()
		p.SendPayload(frame.TagClientIdent, p.ClientIdent(1, 1))
		p.ExpectReset()
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), "got SERVER_IDENT, want SESSION_RESET") {
			t.Errorf("got %v", err)
		}
	})
}

type dataPayload interface{ AppendTo([]byte) []byte }

// decodeData reads the payload of a frame of the data phase.
func decodeData(name string, p []byte) (dataPayload, error) {
	if name == "ACK" {
		return msgrtest.DecodeAck(p)
	}
	return msgrtest.DecodeKeepalive(p)
}

// recordedData are payloads that real daemons sent.
var recordedData = []struct{ frame, payload string }{
	{"KEEPALIVE2", "3321016b179ada36"},
	{"ACK", "0100000000000000"},
	{"KEEPALIVE2_ACK", "3321016b179ada36"},
	{"ACK", "0400000000000000"},
	{"KEEPALIVE2", "d20400002e160000"},
	{"KEEPALIVE2_ACK", "d20400002e160000"},
	{"KEEPALIVE2", "00f1536515cd5b07"},
	{"KEEPALIVE2_ACK", "00f1536515cd5b07"},
}

// Matrix: IN-06
func TestRecordedDataPayloadsReencodeIdentically(t *testing.T) {
	for _, r := range recordedData {
		p, err := hex.DecodeString(r.payload)
		must(t, err)
		for n := range p {
			if _, err := decodeData(r.frame, p[:n]); !errors.Is(err, wire.ErrTruncated) || !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%s cut to %d of %d bytes: %v", r.frame, n, len(p), err)
			}
		}
		v, err := decodeData(r.frame, append(bytes.Clone(p), "surplus"...))
		if err != nil {
			t.Errorf("%s %s: %v", r.frame, r.payload, err)
			continue
		}
		if got := v.AppendTo([]byte("head")); !bytes.Equal(got, append([]byte("head"), p...)) {
			t.Errorf("%s: got %x behind head, want %s", r.frame, got, r.payload)
		}
	}
}

func TestRecordedDataPayloadsMeanWhatTheySay(t *testing.T) {
	k, err := msgrtest.DecodeKeepalive([]byte{0x00, 0xf1, 0x53, 0x65, 0x15, 0xcd, 0x5b, 0x07})
	must(t, err)
	if got := k.Stamp.Time(); !got.Equal(time.Unix(1700000000, 123456789)) {
		t.Errorf("the stamp is %v", got)
	}
	a, err := msgrtest.DecodeAck([]byte{4, 0, 0, 0, 0, 0, 0, 0})
	if err != nil || a.Seq != 4 {
		t.Errorf("the ack is for %d, %v", a.Seq, err)
	}
}

// echoes is a TCP server that sends back what it gets.
func echoes(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(struct{ io.Writer }{c}, c) // not by splice, which keeps its pipes for the next one
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// exchange sends data through the proxy and returns what came back.
func exchange(t *testing.T, p *msgrtest.HostileProxy, data []byte) []byte {
	c, err := net.Dial("tcp4", p.Addr().String())
	must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	back, _ := io.ReadAll(c) // how it ends is the proxy's affair
	return back
}

// Matrix: OB-06
func TestAHostileProxyDoesEverythingAndInventsNothing(t *testing.T) {
	nodetest.CheckLeaks(t)
	p := msgrtest.NewHostileProxy(t, msgrtest.HostileConfig{Seed: 3, Reach: 4096, Stall: time.Millisecond})
	if back := exchange(t, p, []byte("x")); len(back) != 0 {
		t.Errorf("%q came back from nowhere", back)
	}
	<-p.Refused()
	p.Lead(echoes(t))
	data := make([]byte, 64<<10)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	all := func(n msgrtest.Troubles) bool {
		return n.Cuts > 0 && n.Resets > 0 && n.HalfCloses > 0 && n.Stalls > 0 && n.Pauses > 0
	}
	for range 200 {
		if back := exchange(t, p, data); !bytes.HasPrefix(data, back) {
			t.Fatalf("%d bytes came back that nobody sent", len(back))
		}
		if all(p.Troubles()) {
			break
		}
	}
	if n := p.Troubles(); !all(n) || p.Carried() == 0 {
		t.Errorf("%v in %d connections", n, p.Carried())
	}
	p.Calm()
	// A connection of before may be in the middle of its last one, each of them once.
	quiet := false
	for range 20 {
		before := p.Troubles()
		if back := exchange(t, p, data); !bytes.Equal(back, data) {
			t.Errorf("calm: %d of %d bytes came back", len(back), len(data))
		}
		if quiet = p.Troubles() == before; quiet {
			break
		}
	}
	if !quiet {
		t.Errorf("calm, and there are more and more: %v", p.Troubles())
	}
}

func TestAReservedPortRefusesUntilTheTestListensThere(t *testing.T) {
	at := msgrtest.ReservePort(t).String()
	for range 2 {
		if c, err := net.Dial("tcp4", at); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("%v, %v", c, err)
		}
		l, err := net.Listen("tcp4", at)
		must(t, err)
		c, err := net.Dial("tcp4", at)
		must(t, err)
		_ = c.Close()
		_ = l.Close()
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

func TestUntilAsksUntilTheAnswerIsYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		err := msgrtest.Until(t.Context(), func() bool { asked++; return asked == 3 })
		if err != nil || asked != 3 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
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
