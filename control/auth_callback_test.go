package control_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// slow makes calls of authentication wait until the test lets them go on.
type slow struct {
	entered chan struct{}
	release chan struct{}
	obey    bool // goes on when the context is done, too
}

func newSlow(obey bool) *slow {
	return &slow{entered: make(chan struct{}, 16), release: make(chan struct{}), obey: obey}
}

func (s *slow) wait(ctx context.Context) {
	s.entered <- struct{}{}
	var done <-chan struct{}
	if s.obey {
		done = ctx.Done()
	}
	select {
	case <-s.release:
	case <-done:
	}
}

// slowServer is a server whose answer to one entity takes long.
type slowServer struct {
	auth.Server
	*slow
	who string
}

func (s slowServer) Start(ctx context.Context, peer wire.EntityType, m auth.Method, mode auth.Mode) (auth.ServerExchange, error) {
	x, err := s.Server.Start(ctx, peer, m, mode)
	return slowServing{x, s}, err
}

type slowServing struct {
	auth.ServerExchange
	s slowServer
}

func (x slowServing) Handle(ctx context.Context, p []byte) ([]byte, *auth.Result, error) {
	if bytes.Contains(p, []byte(x.s.who)) {
		x.s.wait(ctx)
	}
	return x.ServerExchange.Handle(ctx, p)
}

// slowClient is a client that takes long with what peers of a type say last. It
// keeps what it found.
type slowClient struct {
	auth.Client
	*slow
	peer  wire.EntityType
	mu    sync.Mutex
	found []*auth.Result
	keys  [][]byte // of the results, which share them
}

func (c *slowClient) Start(ctx context.Context, peer wire.EntityType) (auth.ClientExchange, error) {
	x, err := c.Client.Start(ctx, peer)
	if err != nil || peer != c.peer {
		return x, err
	}
	return slowDialling{x, c}, nil
}

type slowDialling struct {
	auth.ClientExchange
	c *slowClient
}

func (x slowDialling) Done(ctx context.Context, id uint64, mode auth.Mode, p []byte) (*auth.Result, error) {
	x.c.wait(ctx)
	res, err := x.ClientExchange.Done(ctx, id, mode, p)
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	if res != nil {
		x.c.found = append(x.c.found, res)
		x.c.keys = append(x.c.keys, res.SessionKey, res.ConnectionSecret)
	}
	return res, err
}

// arrives waits for a channel.
func arrives(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(authPatience):
		t.Fatalf("%s: did not happen", what)
	}
}

// happens waits for something that other goroutines bring about.
func happens(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), authPatience)
	defer cancel()
	if msgrtest.Until(ctx, ok) != nil {
		t.Fatalf("%s: did not happen", what)
	}
}

func counters(t *testing.T, m *control.Messenger) control.Counters {
	t.Helper()
	st, err := m.Stats()
	must(t, err)
	return st.Counters
}

// An authentication callback that takes 5 s stops nobody but the peer
// that it is about, and what it takes counts against the time of the handshake.
// Matrix: AU-16
func TestASlowAuthServerHoldsUpNobodyElse(t *testing.T) {
	for _, obey := range []bool{true, false} {
		clock, s := newHandClock(), newSlow(obey)
		server := newParty(t, control.Config{
			Name: entity(t, "mon.a"), Clock: clock,
			Auth: control.Auth{Server: slowServer{none.NewServer(none.ServerConfig{Monitor: true}), s, "slow"}},
		}).bind(t)
		fast := newParty(t, control.Config{Name: entity(t, "client.fast")})
		conn, err := fast.dial(t, server, wire.Mon)
		must(t, err)
		tardy := newParty(t, control.Config{Name: entity(t, "client.slow")})
		connect := func() *control.Conn {
			c, err := tardy.m.Connect(server.addr, wire.Mon, control.Once(), control.Anonymous())
			must(t, err)
			arrives(t, "the callback", s.entered)
			return c
		}
		others := func() {
			t.Helper()
			for range 20 {
				exchange(t, fast, server, conn, []byte("meanwhile"))
			}
			more, err := fast.dial(t, server, wire.Mon)
			must(t, err)
			more.MarkDown()
		}
		first := connect()
		others()
		clock.pass(5 * time.Second)
		others()
		if st := first.State(); st != control.StateConnecting {
			t.Fatalf("after 5 s: %v, %v", st, first.Err())
		}
		s.release <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), authPatience)
		defer cancel()
		if err := first.WaitReady(ctx); err != nil {
			t.Fatalf("after 5 s: %v", err)
		}
		second := connect()
		clock.pass(daemonHandshake)
		others()
		if !obey {
			close(s.release) // too late
		}
		arrives(t, "the end of the second", second.Closed())
		if err := second.Err(); errors.Is(err, control.ErrAuth) {
			t.Errorf("a time limit is called a failed authentication: %v", err)
		}
		happens(t, "the failure", func() bool { return counters(t, server.m).AcceptFailures == 1 })
		if n := counters(t, server.m).AuthFailures; n != 0 {
			t.Errorf("%d failed authentications", n)
		}
	}
}

// AU-16, at the connector: its other connections go on, and the handshake ends
// at its deadline, also if the callback takes no notice of that.
// Matrix: AU-16
func TestASlowAuthClientHoldsUpNobodyElse(t *testing.T) {
	for _, obey := range []bool{true, false} {
		clock, s := newHandClock(), newSlow(obey)
		mon := newParty(t, control.Config{Name: entity(t, "mon.a")}).bind(t)
		osd := newParty(t, control.Config{Name: entity(t, "osd.0")}).bind(t)
		who := entity(t, "client.admin")
		client := newParty(t, control.Config{Name: who, Clock: clock, Auth: control.Auth{Client: &slowClient{Client: none.NewClient(who), slow: s, peer: wire.OSD}}})
		conn, err := client.dial(t, mon, wire.Mon)
		must(t, err)
		late, err := client.m.Connect(osd.addr, wire.OSD, control.Once())
		must(t, err)
		arrives(t, "the callback", s.entered)
		for range 20 {
			exchange(t, client, mon, conn, []byte("meanwhile"))
		}
		clock.pass(daemonHandshake)
		if !obey {
			close(s.release)
		}
		arrives(t, "the end", late.Closed())
		if err := late.Err(); !errors.Is(err, control.ErrHandshakeTimeout) || errors.Is(err, control.ErrAuth) {
			t.Errorf("obey %v: %v", obey, err)
		}
		exchange(t, client, mon, conn, []byte("and after"))
	}
}

// The result of a callback that comes after its connection was closed is
// ignored: no event, no socket, and the keys in it are gone.
// Matrix: AU-17
func TestALateResultOfAClosedConnectionIsIgnored(t *testing.T) {
	for _, obey := range []bool{true, false} {
		both := []auth.Mode{auth.Secure}
		authClient, authServer := cephxPair(t, both, both)
		late := &slowClient{Client: authClient, slow: newSlow(obey), peer: wire.Mon}
		server := newParty(t, control.Config{Name: entity(t, "mon.a"), Auth: control.Auth{Server: authServer}}).bind(t)
		var events atomic.Int64
		m := authMessenger(t, control.Config{Name: entity(t, "client.admin"), Auth: control.Auth{Client: late}}, &control.Dispatcher{
			Connect: func(*control.Conn, int) { events.Add(1) },
			Reset:   func(*control.Conn, bool) { events.Add(1) },
		})
		conn, err := m.Connect(server.addr, wire.Mon)
		must(t, err)
		arrives(t, "the callback", late.entered)
		conn.MarkDown()
		arrives(t, "the end", conn.Closed())
		if !obey { // else the end of its context has it go on
			close(late.release)
		}
		happens(t, "a result", func() bool { late.mu.Lock(); defer late.mu.Unlock(); return len(late.found) == 1 })
		shutdown(t, m) // waits for the handshake
		if n := events.Load(); n != 0 || conn.State() != control.StateClosing || !errors.Is(conn.Err(), control.ErrMarkedDown) {
			t.Errorf("obey %v: %d events, %v, %v", obey, n, conn.State(), conn.Err())
		}
		for _, k := range late.keys {
			if len(k) == 0 || !bytes.Equal(k, make([]byte, len(k))) {
				t.Errorf("obey %v: a key of %d bytes is left", obey, len(k))
			}
		}
		happens(t, "the server's end of it", func() bool { st, err := server.m.Stats(); return err == nil && st.Open+st.HalfOpen == 0 })
	}
}
