package control_test

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// acceptingPair is a client and a server on a simulated network, for what one
// accepted connection costs. In the call of accept nothing else happens.
type acceptingPair struct {
	s              *simulated
	server, client *control.Messenger
	to             wire.Addr
	accepted       int
	last           *control.Conn // the client's
}

func newAccepting(t *testing.T) *acceptingPair {
	a := &acceptingPair{s: newSimulated(t), to: wire.Addr{Type: wire.AddrMsgr2}}
	a.server, _ = a.s.start(1, wire.EntityName{Type: wire.OSD, ID: "0"}, &control.Dispatcher{
		Accept: func(*control.Conn, int, bool) { a.accepted++ },
	})
	a.client, _ = a.s.start(2, wire.EntityName{Type: wire.Client, ID: "admin"}, &control.Dispatcher{})
	a.to.AddrPort = a.s.at(1)
	a.s.do(func() {
		bound, err := a.server.Bind(a.to)
		must(t, err)
		a.to = bound[0]
	})
	return a
}

// drop ends the connection that was accepted last.
func (a *acceptingPair) drop() {
	a.s.t.Helper()
	a.last.MarkDown()
	a.s.settle()
}

// accept has the server accept a connection.
func (a *acceptingPair) accept() {
	a.s.t.Helper()
	was := a.accepted
	conn, err := a.client.Connect(a.to, wire.OSD)
	must(a.s.t, err)
	a.s.settle()
	if a.last = conn; conn.State() != control.StateReady || a.accepted != was+1 {
		a.s.t.Fatalf("state %v, %d accepted", conn.State(), a.accepted-was)
	}
}

func (a *acceptingPair) end() {
	a.s.do(func() { must(a.s.t, a.client.Shutdown(a.s.t.Context())) })
	a.s.do(func() { must(a.s.t, a.server.Shutdown(a.s.t.Context())) })
}
