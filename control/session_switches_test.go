package control_test

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
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
		bound := bind(t, a.server, a.to)
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

// simulated is a simulated network with messengers of one core each. One thing happens
// at a time: a goroutine runs until it waits, or a core turns once. So it can tell
// when the one hands over to the other.
type simulated struct {
	t     *testing.T
	net   *simnet.Network
	cores []*simnet.Core
	asked map[*simnet.Core]int // times that goroutines gave work to the core while it had none
}

func newSimulated(t *testing.T) *simulated {
	return &simulated{t: t, net: simnet.New(1, simnet.Options{Whole: true}), asked: make(map[*simnet.Core]int)}
}

// start makes a messenger with a core on a host of its own.
func (s *simulated) start(host byte, name wire.EntityName, d *control.Dispatcher, change ...func(*control.Config)) (*control.Messenger, *simnet.Core) {
	s.t.Helper()
	cfg := loop.Config{Cores: 1}
	s.net.Host(s.at(host).Addr()).Run(&cfg, func(c *simnet.Core) {
		c.EndInTurn() // what a turn does may let Shutdown go on, which would close the core beside it
		s.cores = append(s.cores, c)
	})
	c := control.Config{Name: name, Plane: cfg}
	for _, f := range change {
		f(&c)
	}
	m, err := control.New(c)
	must(s.t, err)
	must(s.t, m.Start(d))
	return m, s.cores[len(s.cores)-1]
}

func (s *simulated) at(host byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, host}), 6800)
}

// settle lets everything happen that takes no time.
func (s *simulated) settle() {
	s.t.Helper()
	s.wait()
	for range 1 << 16 {
		if !s.step() {
			return
		}
		s.wait()
	}
	s.t.Fatal("it never comes to rest")
}

// step has one core turn, or the network do one thing.
func (s *simulated) step() bool {
	for _, c := range s.cores {
		if c.Busy() {
			must(s.t, c.Turn())
			return true
		}
	}
	at, ok := s.net.Next()
	if ok && at <= s.net.Now() {
		return s.net.Step()
	}
	if ok {
		s.net.Advance(at)
	}
	return ok
}

// wait lets the goroutines run until all of them wait.
func (s *simulated) wait() {
	var idle []*simnet.Core
	for _, c := range s.cores {
		if !c.Busy() {
			idle = append(idle, c)
		}
	}
	synctest.Wait()
	for _, c := range idle {
		if c.Busy() {
			s.asked[c]++
		}
	}
}

// do runs f on a goroutine, and everything else until it is done.
func (s *simulated) do(f func()) {
	s.t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	s.settle()
	select {
	case <-done:
	default:
		s.t.Fatal("it does not end")
	}
}

// The core wakes the goroutine of the handshake with the socket. From there on the
// two take turns: the goroutine gives the core work, for which it waits, and the last
// of it opens the handler. So each time that the core is given work stands for two
// switches, there and from there, or to there.
func TestAnAcceptedConnectionIsReadyAfterEightSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccepting(t)
		core := a.s.cores[0] // the server's
		a.s.asked[core] = 0
		a.accept()
		if n := 2 * a.s.asked[core]; n > 8 {
			t.Errorf("%d switches until the accepted connection is ready, want at most 8", n)
		} else {
			t.Logf("%d switches", n)
		}
		a.end()
	})
}
