package control_test

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Steering of msgr1. There is no server_cookie that could name a core, so its peers give no
// hint; the other rules look at TCP alone.

// A session of msgr1 that comes back is accepted by the core of its owner, as the table
// says, and moves only when the table says something else.
func TestMsgr1SessionsComeBackToTheCoreOfTheirOwner(t *testing.T) {
	needSteering(t)
	const sessions, home, next = 20, 2, 3
	cut := &scissors{}
	policy := control.StatefulServer()
	server, at := steeredAs(t, wire.AddrLegacy, control.SteerTable, func(c *control.Config) {
		c.Default, c.Probe, c.HandshakeTimeout = &policy, cut, steerPatience
	})
	peer := bpf.Normalize(at.Addr())
	if err := server.PinPeer(peer, home); err != nil {
		t.Fatal(err)
	}
	var clients []*sessionClient
	for i := range sessions {
		clients = append(clients, newSessionClient(t, i, server.Addrs()[0], nil))
	}
	for _, c := range clients {
		c.exchange(t, 1)
	}
	// comeBack has all of them lose their socket, and says what became of them.
	comeBack := func(core int) control.Stats {
		t.Helper()
		conns := server.Conns()
		cut.arm(conns)
		for _, c := range clients {
			c.exchange(t, 1)
		}
		if len(conns) != sessions || len(server.Conns()) != sessions {
			t.Fatalf("%d sessions, then %d, want %d", len(conns), len(server.Conns()), sessions)
		}
		for _, c := range server.Conns() {
			i := c.Info()
			if want := (control.Placement{Core: core, Intended: core, By: "table"}); i.Protocol != control.Msgr1 || i.Placement != want || c.Core() != core {
				t.Errorf("connection %d on core %d: %s, %+v, want %+v", c.ID(), c.Core(), i.Protocol, i.Placement, want)
			}
		}
		return statsOf(t, server)
	}
	st := comeBack(home)
	if here, away := moves(st); here != 0 || away != 0 || cut.n.Load() != sessions {
		t.Errorf("%d sessions were cut, %d moved", cut.n.Load(), here)
	}
	perCore := make([]int, steerCores)
	perCore[home] = 2 * sessions
	got, _ := arrived(t, server, 2*sessions)
	expectCores(t, got, perCore)
	if p := st.Counters.Placement; p != (control.PlacementCounters{Intended: 2 * sessions}) {
		t.Errorf("placement %+v, want %d as intended", p, 2*sessions)
	}
	if err := errors.Join(server.UnpinPeer(peer), server.PinPeer(peer, next)); err != nil {
		t.Fatal(err)
	}
	if here, away := moves(comeBack(next)); here != sessions || away != sessions {
		t.Errorf("%d sessions moved here, %d away, want all %d", here, away, sessions)
	}
}
