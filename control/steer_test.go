package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// anyHandshake is no bound on a handshake. An attempt that ends by its bound dials again: from an
// ordinary port, which the kernel's hash brings to any core, or from a hinted one, which counts.
const anyHandshake = time.Hour

// steerCores is the number of cores of the steered servers, whatever the
// number of CPUs.
const steerCores = 4

// needSteering skips the test where the process may not load programs, and fails it there if CI=true.
func needSteering(t testing.TB) {
	t.Helper()
	if _, err := bpf.Probe(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must be able to load programs: %v", err)
		}
		t.Skipf("cannot load programs here: %v", err)
	}
}

// steered is a bound messenger with several cores.
func steered(t testing.TB, mode control.Steer, change func(*control.Config)) (*control.Messenger, netip.AddrPort) {
	t.Helper()
	cfg := control.Config{
		Name:  wire.EntityName{Type: wire.OSD, ID: "0"},
		Steer: mode, Door: control.Door{HalfOpen: 1 << 16},
		Plane: loop.Config{Cores: steerCores},
	}
	if change != nil {
		change(&cfg)
	}
	m := startMessenger(t, cfg, echoAll())
	return m, listenOn(t, m).AddrPort
}

// knock connects from a source, 0 leaving the port to the kernel, and hangs up.
func knock(t testing.TB, from, to netip.AddrPort) {
	t.Helper()
	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(from),
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			if e := raw.Control(func(fd uintptr) {
				err = errors.Join(
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
			}); e != nil {
				return e
			}
			return err
		},
	}
	c, err := d.Dial("tcp", to.String())
	must(t, err)
	// With the banner read nothing is under way to a socket that is gone: a
	// stray segment would be asked about once more, and counted.
	must(t, onlyError(io.ReadFull(c, make([]byte, 26))))
	c.(*net.TCPConn).SetLinger(0) // no TIME_WAIT: the source is free again
	c.Close()
}

// source is a loopback address that no other connection of the test has.
func source(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i&0xff | 1<<7)})
}

// arrived waits until the server has accepted so many sockets, and returns how
// many each core got.
func arrived(t testing.TB, m *control.Messenger, total int) (perCore []int, st control.Stats) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		st = statsOf(t, m)
		perCore = nil
		sum := 0
		for _, c := range st.Cores {
			perCore = append(perCore, int(c.Accepts))
			sum += int(c.Accepts)
		}
		if sum >= total {
			return perCore, st
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d connections accepted: %v", sum, total, perCore)
		}
	}
}

func expectCores(t testing.TB, got, want []int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("cores accepted %v, want %v", got, want)
	}
}

// expectSelected checks what the program counted for each core: as many
// connections selected as want has, and no misses.
func expectSelected(t testing.TB, counters bpf.Counters, want []int, selected func(bpf.CoreCounters) uint64) {
	t.Helper()
	for core, c := range counters.Cores {
		if int(selected(c)) != want[core] || c.Missed() != 0 {
			t.Errorf("counters of core %d: %+v, want %d", core, c, want[core])
		}
	}
}

// The rules that select a core.
func byAddr(c bpf.CoreCounters) uint64 { return c.Addr.Selected }
func byHint(c bpf.CoreCounters) uint64 { return c.Hint.Selected }

func TestTheTablePutsEveryConnectionWhereItBelongs(t *testing.T) {
	needSteering(t)
	const hosts = 100
	m, at := steered(t, control.SteerTable, nil)
	for i := range hosts {
		must(t, m.PinPeer(netip.AddrPortFrom(source(i), 0), i*7%steerCores))
	}
	n := inLongForm(10000, 400)
	want := make([]int, steerCores)
	for i := range n {
		knock(t, netip.AddrPortFrom(source(i%hosts), 0), at)
		want[i%hosts*7%steerCores]++
	}
	got, st := arrived(t, m, n)
	expectCores(t, got, want)
	counters := st.Steering.Groups[0].Counters
	expectSelected(t, counters, want, byAddr)
	if counters.Hash != 0 {
		t.Errorf("%d connections were left to the hash", counters.Hash)
	}

	// The entry for a port goes before the one for the address, and both end.
	from := netip.AddrPortFrom(source(0), 40123)
	must(t, m.PinPeer(from, 3))
	knock(t, from, at)
	want[3]++
	got, _ = arrived(t, m, n+1)
	expectCores(t, got, want)
	must(t, errors.Join(m.UnpinPeer(from), m.UnpinPeer(netip.AddrPortFrom(source(0), 0))))
	knock(t, from, at)
	_, st = arrived(t, m, n+2)
	if hash := st.Steering.Groups[0].Counters.Hash; hash != 1 {
		t.Errorf("%d connections by hash, want the one that is not pinned any more", hash)
	}
}

func TestAutoSteersByTableAndHintAndByCPUIfPinned(t *testing.T) {
	needSteering(t)
	for _, pin := range []bool{false, true} {
		m, _ := steered(t, "", func(c *control.Config) { c.Plane.Pin = pin })
		st := statsOf(t, m).Steering
		want := "[table_addrport table_addr hint]"
		if pin {
			want = "[table_addrport table_addr hint cpu]"
		}
		if !st.Active || fmt.Sprint(st.Rules) != want || st.Mode != control.SteerAuto || st.Why != "" {
			t.Errorf("pinned %v: %+v", pin, st)
		}
	}
}

// The test runs itself once more, in a process that cannot get the capability.
func TestWithoutThePrivilegeEverythingWorksAndStatsSayWhy(t *testing.T) {
	if _, err := bpf.Probe(); err == nil && !isChild(t) {
		check(t, child(t, runtime.GOMAXPROCS(0), func() error { // the bounding set is a thread's
			return errors.Join(unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_BPF, 0, 0, 0), unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0))
		}))
		return
	}
	if _, err := bpf.Probe(); !errors.Is(err, bpf.ErrPermission) {
		t.Fatalf("this process should lack the privilege: %v", err)
	}
	log := &logText{}
	m := startMessenger(t, control.Config{
		Name: osd("0"), Plane: loop.Config{Cores: steerCores}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}, echoAll())
	to := listenOn(t, m)
	for i := range 8 {
		oneClient(t, i, to).exchange(1)
	}
	if got, st := arrived(t, m, 8); len(got) != steerCores || st.Counters.Hints.Given != 0 {
		t.Errorf("cores %v, hints %+v that lead nowhere", got, st.Counters.Hints)
	}
	if n := log.count("connections are not steered"); n != 1 {
		t.Errorf("logged %d times that nothing is steered", n)
	}
	if st := statsOf(t, m).Steering; st.Active || len(st.Groups) != 0 || st.Missing != "CAP_BPF" || st.Remedy == "" || st.Why == "" {
		t.Errorf("steering %+v", st)
	}
}

// oneClient is a messenger with one lossless session.
func oneClient(t *testing.T, i int, to wire.Addr) *stream {
	t.Helper()
	return oneStream(t, clientOf(uring.Epoll, wire.EntityName{Type: wire.Client, ID: fmt.Sprint(i)}, control.LosslessClient()), to)
}

// messageRead is the moment at which a message has begun to arrive.
var messageRead = probe.Point{Step: probe.FrameRead, Tag: frame.TagMessage}

// scissors cut every connection once, at the next message that it receives.
type scissors struct {
	mu  sync.Mutex
	cut map[*control.Conn]bool // present: to be cut
	n   atomic.Int64
}

func (s *scissors) arm(conns []*control.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = make(map[*control.Conn]bool)
	for _, c := range conns {
		s.cut[c] = true
	}
}

// At implements probe.Probe.
func (s *scissors) At(_ context.Context, e probe.Event) error {
	if e.Point != messageRead {
		return nil
	}
	c, _ := e.Conn.(*control.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cut[c] {
		return nil
	}
	delete(s.cut, c)
	s.n.Add(1)
	return probe.ErrReset
}

// cutAndReturn cuts n sessions of a server with hints at once, has them come back with their
// messages, and returns the server.
func cutAndReturn(t *testing.T, n int) (*control.Messenger, []*stream) {
	t.Helper()
	cut := &scissors{}
	policy := control.StatefulServer()
	server, _ := steered(t, control.SteerHint, func(c *control.Config) {
		c.Default, c.Diagnostics.Probe, c.Timeouts.Handshake, c.Plane.StallAfter = &policy, cut, anyHandshake, -1
	})
	var clients []*stream
	for i := range n {
		clients = append(clients, oneClient(t, i, server.Addrs()[0]))
	}
	for _, c := range clients {
		c.exchange(2)
	}
	if got := len(server.Conns()); got != n {
		t.Fatalf("%d sessions, want %d", got, n)
	}
	cut.arm(server.Conns())
	for _, c := range clients {
		must(t, errors.Join(c.push(), c.push(), c.push()))
	}
	for _, c := range clients {
		c.exchange(1)
	}
	if got := cut.n.Load(); got != int64(n) {
		t.Errorf("%d sessions were cut, want %d", got, n)
	}
	if got := len(server.Conns()); got != n {
		t.Errorf("%d sessions afterwards, want the same %d", got, n)
	}
	return server, clients
}

func moves(st control.Stats) (here, away int) {
	for _, c := range st.Cores {
		here += int(c.MovedHere)
		away += int(c.MovedAway)
	}
	return here, away
}

func TestWithTheHintNoSessionMovesToAnotherCore(t *testing.T) {
	needSteering(t)
	// They all shake hands at the same time, so that more of them need more patience, and show nothing else:
	// three of four would move without a hint.
	n := inLongForm(1000, 50)
	server, clients := cutAndReturn(t, n)
	st := statsOf(t, server)
	if here, away := moves(st); here != 0 || away != 0 {
		t.Errorf("%d sessions moved", here)
	}
	if p := st.Counters.Placement; p != (stats.PlacementCounters{Intended: uint64(2 * n)}) {
		t.Errorf("placement %+v, want %d as intended", p, 2*n)
	}
	// What the program counted is what the connections say.
	perCore := make([]int, steerCores)
	for _, c := range server.Conns() {
		cs := connStats(t, c)
		if p := cs.Placement; p.Core != p.Intended || p.By != "session" || p.Reason != "" {
			t.Errorf("connection %d: %+v", cs.ID, p)
		}
		perCore[cs.Placement.Core]++
	}
	counters := st.Steering.Groups[0].Counters
	expectSelected(t, counters, perCore, byHint)
	// The first connections went by hash; a segment on its way to a connection
	// that was cut is asked about like a SYN, and counted, too.
	if counters.Hash < uint64(n) || counters.Hash > uint64(2*n) {
		t.Errorf("%d connections by hash, want the first %d", counters.Hash, n)
	}
	if h := st.Counters.Hints; h.Given != uint64(n) {
		t.Errorf("hints %+v", h)
	}
	for _, c := range clients {
		cs := connStats(t, c.c)
		h := statsOf(t, c.m).Counters.Hints
		if cs.Counters.Hinted != 1 || h.Dialled != 1 || h.Gone+h.Refused+h.Translated+h.Contradicted != 0 {
			t.Errorf("client %s: hinted %d, %+v", c.m.Name(), cs.Counters.Hinted, h)
		}
	}
}

func TestOutgoingConnectionsGoToTheLeastLoadedCore(t *testing.T) {
	m := startMessenger(t, control.Config{
		Name:  wire.EntityName{Type: wire.Client, ID: "a"},
		Plane: loop.Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}},
	})
	perCore := map[int]int{}
	dial := func(by string, o ...control.ConnectOption) {
		t.Helper()
		c := connect(t, m, peerAddr(uint32(1+len(m.Conns()))), wire.OSD, o...)
		core := c.Core().ID()
		if p := connStats(t, c).Placement; p != (stats.Placement{Core: core, Intended: core, By: by}) {
			t.Errorf("placement %+v on core %d, want by %s", p, core, by)
		}
		perCore[core]++
	}
	for range 4 {
		dial("given", control.OnCore(1))
	}
	for range 8 { // go to the others, in turn
		dial("least-loaded")
	}
	if perCore[0] != 4 || perCore[1] != 4 || perCore[2] != 4 {
		t.Errorf("placed %v", perCore)
	}
	if _, err := m.Connect(peerAddr(99), wire.OSD, control.OnCore(-1)); err == nil || !strings.Contains(err.Error(), "core -1") {
		t.Errorf("core -1: %v", err)
	}
}

// Pins that name the core of a session decide before its hint.
func TestThePinGoesBeforeTheSession(t *testing.T) {
	needSteering(t)
	cut := &scissors{}
	policy := control.StatefulServer()
	server, _ := steered(t, "table,hint", func(c *control.Config) { c.Default, c.Diagnostics.Probe = &policy, cut })
	c := oneClient(t, 1, server.Addrs()[0])
	c.exchange(1)
	was := server.Conns()[0].Core().ID()
	to := (was + 1) % steerCores
	must(t, server.PinPeer(netip.AddrPortFrom(server.Addrs()[0].AddrPort.Addr(), 0), to))
	cut.arm(server.Conns())
	c.exchange(2)
	if p := server.Conns()[0].Info().Placement; p != (stats.Placement{Core: to, Intended: to, By: "table"}) {
		t.Errorf("placement %+v, want core %d", p, to)
	}
	if here, _ := moves(statsOf(t, server)); here != 1 {
		t.Errorf("%d moves", here)
	}
}

// Pins and their counters last over a Rebind, but not over an Unbind. The core that gets the number of
// a removed one has none of its pins.
func TestPinsLastOverARebindAndUntilTheirCoreEnds(t *testing.T) {
	needSteering(t)
	drivertest.LeavesNothing(t) // of programs and maps, too
	m, at := steered(t, control.SteerTable, nil)
	from, ctx := netip.AddrPortFrom(source(1), 0), deadline(t)
	must(t, m.PinPeer(from, 2))
	want := make([]int, steerCores)
	for range 3 {
		for range 10 {
			knock(t, from, at)
		}
		want[2] += 10
		got, st := arrived(t, m, want[2])
		expectCores(t, got, want)
		g := st.Steering.Groups
		if !st.Steering.Active || len(g) != 1 || g[0].Addr != at.String() {
			t.Fatalf("steering %+v", st.Steering)
		}
		expectSelected(t, g[0].Counters, want, byAddr)
		addrs, err := m.Rebind(ctx)
		must(t, err)
		at = addrs[0].AddrPort
	}
	must(t, m.RemoveCore(ctx, 2))
	knock(t, from, at)
	if id, err := m.AddCore(ctx); id != 2 || err != nil {
		t.Fatalf("core %d, %v", id, err)
	}
	knock(t, from, at)
	counters := func() bpf.Counters { return statsOf(t, m).Steering.Groups[0].Counters }
	eventually(t, ctx, "two connections by hash", func() bool { return counters().Hash >= 2 })
	for core, c := range counters().Cores {
		if c.Missed() != 0 {
			t.Errorf("%d connections were pinned to core %d, which was not there", c.Missed(), core)
		}
	}
	must(t, m.Unbind())
	addrs, err := m.Rebind(ctx)
	must(t, err)
	before, _ := arrived(t, m, 0)
	must(t, m.PinPeer(from, 3))
	knock(t, from, addrs[0].AddrPort)
	before[3]++
	eventually(t, ctx, "a connection on the core of the pin", func() bool {
		now, _ := arrived(t, m, 0)
		return slices.Equal(now, before)
	})
}

// A Rebind waits for a hand-over that is under way. If that fails it goes on, if
// its own context ends it does not.
func TestRebindWaitsForAHandOver(t *testing.T) {
	us := startMessenger(t, serverConfig(uring.Auto, 1))
	before := bind(t, us, v2(ownHost(), 0))
	ctx := deadline(t)
	begun, fail := make(chan struct{}), make(chan struct{})
	cfg := serverConfig(uring.Auto, 1)
	cfg.Plane.Open = func(int) (uring.Driver, error) {
		close(begun)
		<-fail
		return nil, errors.New("no driver")
	}
	a, b := linktest.UnixPair(t)
	handed := async(func() error { return us.HandOver(ctx, a) })
	taken := async(func() error { return onlyError(control.TakeOver(ctx, cfg, b)) })
	<-begun
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	wantError(t, "rebind without patience", onlyError(us.Rebind(impatient)), context.Canceled)
	if got := us.Addrs(); !got.Equal(before) {
		t.Errorf("now at %v", got)
	}
	rebound := async(func() error { return onlyError(us.Rebind(ctx)) })
	close(fail)
	for _, ended := range []<-chan error{handed, taken} {
		if err := <-ended; err == nil {
			t.Error("handed over to nobody")
		}
	}
	if err := <-rebound; err != nil {
		t.Errorf("rebind: %v", err)
	}
	if got := us.Addrs(); got.Equal(before) {
		t.Errorf("still at %v", got)
	}
}
