package control_test

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// accepting is a pair whose client connects again, for what one accepted connection costs. In
// the call of accept nothing else happens.
type accepting struct {
	*pair.Pair
	t        *testing.T
	accepted int
}

func onAccepting(t *testing.T, f func(t *testing.T, a *accepting)) {
	a := &accepting{}
	stateless, lossy := control.StatelessServer(), control.LossyClient()
	cfg := pair.Config{Serve: &control.Dispatcher{Accept: func(*control.Conn, int, bool) { a.accepted++ }}}
	cfg.Server.Default, cfg.Client.Default, cfg.Network.Whole = &stateless, &lossy, true
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		a.Pair, a.t = p, t
		a.drop() // what is made once is there from now on
		f(t, a)
	})
}

// drop ends the connection that was accepted last.
func (a *accepting) drop() {
	a.Conn.MarkDown()
	a.Pass(time.Second)
}

// accept has the server accept a connection.
func (a *accepting) accept() {
	a.t.Helper()
	was := a.accepted
	a.Conn = connect(a.t, a.Client, a.Addr, wire.OSD)
	a.Pass(time.Second)
	if a.Conn.State() != control.StateReady || a.accepted != was+1 {
		a.t.Fatalf("state %v, %d accepted", a.Conn.State(), a.accepted-was)
	}
}

// The core wakes the goroutine of the handshake with the socket. From there on the
// two take turns: the goroutine gives the core work, for which it waits, and the last
// of it opens the handler. So each time that the core is woken by work stands for two
// switches, there and from there, or to there.
func TestAnAcceptedConnectionIsReadyAfterEightSwitches(t *testing.T) {
	onAccepting(t, func(t *testing.T, a *accepting) {
		wakes := func() int { return int(statsOf(t, a.Server).Cores[0].Driver.Wakes) }
		before := wakes()
		a.accept()
		n := 2 * (wakes() - before - 1) // without that of the statistics
		if t.Logf("%d switches", n); n > 8 {
			t.Errorf("%d switches until the accepted connection is ready, want at most 8", n)
		}
	})
}
