package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/uring"
)

// hostileCell is one set-up of the test below. The seed decides where the
// network fails.
type hostileCell struct {
	backend uring.Backend
	cores   int
	seed    uint64
	proto   string
}

// hostileCells are the cells, and the time of each: RINGMSGR_LONG, or shortly and one of each
// protocol only.
func hostileCells(t *testing.T) ([]hostileCell, time.Duration) {
	t.Helper()
	all := []hostileCell{
		{uring.Auto, 4, 1, "v2"}, {uring.Auto, 1, 5, "v1"}, {uring.Auto, 1, 2, "v2"}, {uring.Epoll, 4, 3, "v2"}, {uring.Epoll, 1, 4, "v2"},
		{uring.Auto, 4, 6, "v1"}, {uring.Epoll, 4, 7, "v1"}, {uring.Epoll, 1, 8, "v1"},
	}
	long := os.Getenv("RINGMSGR_LONG")
	if long == "" {
		return all[:2], 2 * time.Second
	}
	span, err := time.ParseDuration(long)
	if err != nil {
		t.Fatalf("RINGMSGR_LONG: %v", err)
	}
	return all, span
}

// Two processes, each of which reaches the other only through a proxy that does
// not let any connection live. Nothing may be lost, doubled or overtaken, in
// either direction, whoever dials.
// Matrix: FT-32, V1-11
func TestLosslessSendAcrossAHostileNetwork(t *testing.T) {
	cells, span := hostileCells(t)
	for _, c := range cells {
		t.Run(fmt.Sprintf("%s,cores=%d,%s", c.backend, c.cores, c.proto), func(t *testing.T) {
			sendAcross(t, c, span)
		})
	}
}

func sendAcross(t *testing.T, cell hostileCell, span time.Duration) {
	// Different addresses of this machine, so that the free port of the sender is still free
	// when it starts.
	here, there := netip.MustParseAddr("127.0.0.1"), ownHost()
	sender := netip.AddrPortFrom(there, freePort(t, there))
	// A stall is longer than keepalives wait; but a handshake that stands still
	// waits longer than the test wants to.
	trouble := msgrtest.HostileConfig{Stall: 1500 * time.Millisecond}
	trouble.Seed, trouble.From = cell.seed, there
	toServer := msgrtest.NewHostileProxy(t, trouble)
	trouble.Seed, trouble.From = cell.seed+100, here
	toSender := msgrtest.NewHostileProxy(t, trouble)
	toSender.Lead(sender)
	common := []string{
		"--json", "--policy", "lossless-peer", "--cores", fmt.Sprint(cell.cores), "--backend", string(cell.backend),
		"--keepalive", "100ms", "--log-level", "off", "--proto", cell.proto,
	}
	server := spawn(t, append([]string{"serve", "--name", "osd.0", "--listen", "127.0.0.1:0/70",
		"--via", toSender.Addr().String(), "--timeout", "1s"}, common...)...)
	var ready listening
	server.decode(&ready)
	toServer.Lead(ready.Listening.Front().AddrPort)

	client := spawn(t, append([]string{"send", "--name", "osd.1", "--peer", "osd", "--listen", cell.proto + ":" + sender.String(),
		"--via", toServer.Addr().String(), "--duration", span.String(), "--depth", "32", "--size", "3KiB",
		"--timeout", "60s", ready.Listening.Front().String()}, common...)...)
	calm := time.AfterFunc(span, func() { toServer.Calm(); toSender.Calm() })
	defer calm.Stop()
	var report sent
	client.decode(&report)
	client.Want(cli.OK)
	server.Signal(syscall.SIGTERM)
	server.Want(cli.OK)

	if report.Verified == 0 || report.Verified != report.Messages || report.Lossy || report.Reconnects == 0 ||
		report.Duplicates+report.Losses+report.Corrupt != 0 {
		t.Errorf("send says %+v", report)
	}
	troubles := toServer.Troubles().Add(toSender.Troubles())
	if troubles == (msgrtest.Troubles{}) {
		t.Error("nothing disturbed the connections")
	}
	t.Logf("seed %d: %d messages there and back, %d reconnects, %d connections to serve, %d to send; %v",
		cell.seed, report.Verified, report.Reconnects, toServer.Carried(), toSender.Carried(), troubles)
}

// process is the program in a process of its own, which writes JSON.
type process struct {
	*clitest.Process
	t     testing.TB
	name  string
	lines *json.Decoder
}

func spawn(t testing.TB, args ...string) *process {
	t.Helper()
	p := clitest.Start(t, args...)
	return &process{Process: p, t: t, name: args[0], lines: json.NewDecoder(p.Stdout)}
}

// decode waits for the next line of JSON and returns it as well.
func (p *process) decode(v any) string {
	p.t.Helper()
	var line json.RawMessage
	if err := p.lines.Decode(&line); err != nil {
		p.t.Fatalf("%s says nothing: %v: %s", p.name, err, p.Stderr())
	}
	if err := json.Unmarshal(line, v); err != nil {
		p.t.Fatalf("%s says %s: %v", p.name, line, err)
	}
	return string(line)
}

// freePort is a free port of ip.
func freePort(t *testing.T, ip netip.Addr) uint16 {
	t.Helper()
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	clitest.Must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

func TestVia(t *testing.T) {
	s := serve(t, "--name", "osd.0", "--listen", "v2:127.0.0.1:0/9")
	road := msgrtest.NewHostileProxy(t, msgrtest.HostileConfig{})
	road.Calm()
	addr := strings.TrimPrefix(s.addr, "v2:")
	road.Lead(netip.MustParseAddrPort(strings.TrimSuffix(addr, "/9")))
	via := road.Addr().String()
	p := decode[pong](t, ringmsgr(t, "ping", "--json", "--peer", "osd", "--via", via, s.addr).want(t, cli.OK))
	if p.Peer.Addrs.String() != "["+s.addr+"]" || road.Carried() != 1 {
		t.Errorf("%+v, %d connections through the proxy", p, road.Carried())
	}
	// The address of the proxy is not that of the server.
	f := decode[failure](t, ringmsgr(t, "ping", "--json", "--peer", "osd", "--timeout", "2s", "v2:"+via+"/9").want(t, cli.Failed))
	if f.Stage == control.StageConnect || road.Carried() != 2 {
		t.Errorf("%+v, %d connections through the proxy", f, road.Carried())
	}
}

// A lossless peer without messages stands by after a failure. A user who wants to send must not
// wait for that.
func TestLosslessSendRepeatsItsFirstAttempt(t *testing.T) {
	s := serve(t, "--name", "osd.0", "--listen", "v2:127.0.0.1:0/9", "--policy", "stateful-server")
	road := msgrtest.NewHostileProxy(t, msgrtest.HostileConfig{})
	road.Calm()
	go func() {
		<-road.Refused()
		road.Lead(netip.MustParseAddrPort(strings.TrimSuffix(strings.TrimPrefix(s.addr, "v2:"), "/9")))
	}()
	r := ringmsgr(t, "send", "--json", "--peer", "osd", "--policy", "lossless-peer", "--messages", "10", "--via", road.Addr().String(), s.addr)
	if x := decode[sent](t, r.want(t, cli.OK)); x.Verified != 10 {
		t.Errorf("send says %+v", x)
	}
}

// ownHost is an address of this process alone: another one may run the same
// tests.
func ownHost() netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(2 + pid>>16%250), byte(pid >> 8), byte(pid)})
}
