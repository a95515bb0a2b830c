package control_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// sessionClient is a messenger with one lossless session.
type sessionClient struct {
	m       *control.Messenger
	conn    *control.Conn
	replies chan uint64 // tids, in the order of arrival
	next    uint64
}

func newSessionClient(t testing.TB, i int, to wire.Addr, change func(*control.Config)) *sessionClient {
	t.Helper()
	policy := control.LosslessClient()
	cfg := control.Config{
		Name: wire.EntityName{Type: wire.Client, ID: fmt.Sprint(i)}, Default: &policy,
		Timeouts: control.Timeouts{InitialBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, Handshake: steerPatience},
		Plane:    loop.Config{Cores: 1, StallAfter: -1, Driver: uring.Config{Backend: uring.Epoll}},
	}
	if change != nil {
		change(&cfg)
	}
	m, err := control.New(cfg)
	must(t, err)
	endWithTest(t, m)
	s := &sessionClient{m: m, replies: make(chan uint64, 16)}
	if err := m.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		s.replies <- m.TID
		return true
	}}); err != nil {
		t.Fatal(err)
	}
	s.conn, err = m.Connect(to, wire.OSD)
	must(t, err)
	return s
}

// send queues one message.
func (s *sessionClient) send(t testing.TB) {
	t.Helper()
	msg := control.NewMessage(1, []byte("ping"), nil)
	s.next++
	msg.TID = s.next
	must(t, s.conn.Send(msg))
}

// expect waits for the echo of message tid, which must be the next to come.
func (s *sessionClient) expect(t testing.TB, tid uint64) {
	t.Helper()
	select {
	case got := <-s.replies:
		if got != tid {
			t.Errorf("echo of %d where %d was due", got, tid)
		}
	case <-time.After(steerPatience):
		t.Fatalf("no echo of %d: state %v, %v", tid, s.conn.State(), s.conn.Err())
	}
}

func (s *sessionClient) exchange(t testing.TB, n int) {
	t.Helper()
	for range n {
		s.send(t)
		s.expect(t, s.next)
	}
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

// cutAndReturn cuts n sessions at once, has them come back with their messages, and
// returns the server.
func cutAndReturn(t *testing.T, mode control.Steer, n int) (*control.Messenger, []*sessionClient) {
	t.Helper()
	cut := &scissors{}
	policy := control.StatefulServer()
	server, _ := steered(t, mode, func(c *control.Config) {
		c.Default, c.Diagnostics.Probe, c.Timeouts.Handshake = &policy, cut, steerPatience
	})
	var clients []*sessionClient
	for i := range n {
		clients = append(clients, newSessionClient(t, i, server.Addrs()[0], func(c *control.Config) {
			if mode == control.SteerNone {
				c.Steer = control.SteerNone
			}
		}))
	}
	for _, c := range clients {
		c.exchange(t, 2)
	}
	if got := len(server.Conns()); got != n {
		t.Fatalf("%d sessions, want %d", got, n)
	}
	cut.arm(server.Conns())
	for _, c := range clients {
		for range 3 {
			c.send(t)
		}
	}
	for _, c := range clients {
		for tid := uint64(3); tid <= 5; tid++ {
			c.expect(t, tid)
		}
		c.exchange(t, 1)
	}
	if got := cut.n.Load(); got != int64(n) {
		t.Errorf("%d sessions were cut, want %d", got, n)
	}
	if got := len(server.Conns()); got != n {
		t.Errorf("%d sessions afterwards, want the same %d", got, n)
	}
	return server, clients
}

func sessionsToCut() int {
	if longSteering() {
		return 1000
	}
	return 200
}

// moves sums up the sessions that changed cores.
func moves(st control.Stats) (here, away int) {
	for _, c := range st.Cores {
		here += int(c.MovedHere)
		away += int(c.MovedAway)
	}
	return here, away
}

func TestWithTheHintNoSessionMovesToAnotherCore(t *testing.T) {
	needSteering(t)
	n := sessionsToCut()
	server, clients := cutAndReturn(t, control.SteerHint, n)
	st := statsOf(t, server)
	if here, away := moves(st); here != 0 || away != 0 {
		t.Errorf("%d sessions moved", here)
	}
	if p := st.Counters.Placement; p != (control.PlacementCounters{Intended: uint64(2 * n)}) {
		t.Errorf("placement %+v, want %d as intended", p, 2*n)
	}
	// What the program counted is what the connections say.
	perCore := make([]int, steerCores)
	for _, c := range server.Conns() {
		cs, err := c.Stats()
		must(t, err)
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
		cs, err := c.conn.Stats()
		must(t, err)
		h := statsOf(t, c.m).Counters.Hints
		if cs.Counters.Hinted != 1 || h.Dialled != 1 || h.Gone+h.Refused+h.Translated+h.Contradicted != 0 {
			t.Errorf("client %s: hinted %d, %+v", c.m.Name(), cs.Counters.Hinted, h)
		}
	}
}

func TestOutgoingConnectionsGoToTheLeastLoadedCore(t *testing.T) {
	m, err := control.New(control.Config{
		Name:  wire.EntityName{Type: wire.Client, ID: "a"},
		Plane: loop.Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}},
	})
	must(t, err)
	endWithTest(t, m)
	must(t, m.Start())
	to := func(i int) wire.Addr {
		a, err := wire.ParseAddr(fmt.Sprintf("v2:127.0.0.1:1/%d", i))
		must(t, err)
		return a
	}
	connect := func(i int, o ...control.ConnectOption) *control.Conn {
		t.Helper()
		c, err := m.Connect(to(i), wire.OSD, o...)
		must(t, err)
		return c
	}
	given := connect(1, control.OnCore(1))
	for i := range 3 {
		if c := connect(2+i, control.SameCore(given)); c.Core().ID() != 1 {
			t.Errorf("same core as core 1: %d", c.Core().ID())
		}
	}
	// Core 1 has four: the next eight go to the others, in turn.
	perCore := map[int]int{}
	var last *control.Conn
	for i := range 8 {
		last = connect(10 + i)
		perCore[last.Core().ID()]++
	}
	if perCore[0] != 4 || perCore[2] != 4 {
		t.Errorf("placed %v", perCore)
	}
	for _, one := range []struct {
		c  *control.Conn
		by string
	}{{given, "given"}, {last, "least-loaded"}} {
		st, err := one.c.Stats()
		must(t, err)
		if p := st.Placement; p.By != one.by || p.Core != p.Intended || p.Core != one.c.Core().ID() || p.Reason != "" {
			t.Errorf("placement %+v, want by %s", p, one.by)
		}
	}
	if _, err := m.Connect(to(99), wire.OSD, control.OnCore(-1)); err == nil || !strings.Contains(err.Error(), "core -1") {
		t.Errorf("core -1: %v", err)
	}
}

// Pins that name the core of a session decide before its hint.
func TestThePinGoesBeforeTheSession(t *testing.T) {
	needSteering(t)
	cut := &scissors{}
	policy := control.StatefulServer()
	server, _ := steered(t, "table,hint", func(c *control.Config) { c.Default, c.Diagnostics.Probe = &policy, cut })
	c := newSessionClient(t, 1, server.Addrs()[0], nil)
	c.exchange(t, 1)
	was := server.Conns()[0].Core().ID()
	to := (was + 1) % steerCores
	must(t, server.PinPeer(bpf.Normalize(server.Addrs()[0].AddrPort.Addr()), to))
	cut.arm(server.Conns())
	c.exchange(t, 2)
	if p := server.Conns()[0].Info().Placement; p != (control.Placement{Core: to, Intended: to, By: "table"}) {
		t.Errorf("placement %+v, want core %d", p, to)
	}
	if here, _ := moves(statsOf(t, server)); here != 1 {
		t.Errorf("%d moves", here)
	}
}
