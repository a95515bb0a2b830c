package control_test

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
)

// cutAll cuts every session of a server once, under messages, and has them all
// come back.
func cutAll(t *testing.T, cut *scissors, server *control.Messenger, clients []*sessionClient) {
	t.Helper()
	cut.arm(server.Conns())
	for _, c := range clients {
		for range 3 {
			c.send(t)
		}
	}
	for _, c := range clients {
		for tid := c.next - 2; tid <= c.next; tid++ {
			c.expect(t, tid)
		}
		c.exchange(t, 1)
	}
	if got := len(server.Conns()); got != len(clients) {
		t.Errorf("%d sessions, want the same %d", got, len(clients))
	}
}

// coresOf are the cores of a server's sessions.
func coresOf(server *control.Messenger) map[*control.Conn]int {
	all := make(map[*control.Conn]int)
	for _, c := range server.Conns() {
		all[c] = c.Core()
	}
	return all
}

// A hint names a core of so many. It holds while that core is there, whatever
// happens to the others; behind that it leads elsewhere, and nobody is worse
// off than without it.
func TestHintsOfBeforeFallBackQuietly(t *testing.T) {
	needSteering(t)
	cut := &scissors{}
	policy := control.StatefulServer()
	server, _ := steered(t, control.SteerHint, func(c *control.Config) {
		c.Default, c.Probe, c.HandshakeTimeout = &policy, cut, steerPatience
	})
	ctx := t.Context()
	add := func(want int) {
		t.Helper()
		if id, err := server.AddCore(ctx); err != nil || id != want {
			t.Fatalf("core %d, %v, want %d", id, err, want)
		}
	}
	var clients []*sessionClient
	join := func(n int) {
		for range n {
			clients = append(clients, newSessionClient(t, len(clients), server.Addrs()[0], nil))
		}
		for _, c := range clients {
			c.exchange(t, 1)
		}
	}
	join(40)
	home := coresOf(server)

	const gone = 1
	if err := server.RemoveCore(ctx, gone); err != nil {
		t.Fatal(err)
	}
	for c, core := range coresOf(server) {
		if core == gone || home[c] != gone && core != home[c] {
			t.Errorf("conn %d on core %d, was on %d", c.ID(), core, home[c])
		}
		if p := c.Info().Placement; home[c] == gone && (p.By != "moved" || p.Core != core || p.Reason != "") {
			t.Errorf("conn %d: %+v", c.ID(), p)
		}
	}
	cutAll(t, cut, server, clients)
	for c, core := range coresOf(server) {
		if core == gone || home[c] != gone && core != home[c] {
			t.Errorf("back without core %d: conn %d on core %d, was on %d", gone, c.ID(), core, home[c])
		}
	}
	if p := statsOf(t, server).Counters.Placement; p.OtherHint != 0 || p.Missed != 0 {
		t.Errorf("hints to a core that is gone are no hints: %+v", p)
	}

	// With its number back the old hints lead home again.
	add(gone)
	cutAll(t, cut, server, clients)
	for c, core := range coresOf(server) {
		if core != home[c] {
			t.Errorf("back with core %d: conn %d on core %d, was on %d", gone, c.ID(), core, home[c])
		}
	}

	// One more than ever: the old hints count to four, the new ones to five.
	add(steerCores)
	cutAll(t, cut, server, clients)
	for _, c := range clients {
		if h := statsOf(t, c.m).Counters.Hints; h.Gone+h.Refused+h.Translated+h.Contradicted != 0 {
			t.Errorf("client %s: %+v", c.m.Name(), h)
		}
	}
	old := server.Conns()
	join(20)
	home = coresOf(server)
	for _, c := range old {
		delete(home, c)
	}
	cutAll(t, cut, server, clients)
	onNew := 0
	for c, core := range coresOf(server) {
		if before, young := home[c]; young && core != before {
			t.Errorf("young conn %d on core %d, was on %d", c.ID(), core, before)
		}
		if core == steerCores {
			onNew++
		}
	}
	st := statsOf(t, server)
	if onNew == 0 || len(st.Steering.Groups[0].Counters.Cores) != steerCores+1 {
		t.Errorf("%d sessions on the new core, %d rows of counters", onNew, len(st.Steering.Groups[0].Counters.Cores))
	}
}
