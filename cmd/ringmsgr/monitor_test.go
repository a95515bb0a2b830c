package main

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// As a mon with a keyring, serve is a mon for a client that stays: the client renews its
// tickets on its session, and has the monmap; all other messages come back unchanged.
func TestServeRenewsTicketsAsAMon(t *testing.T) {
	keyring := keysOf(t, clientKey)
	s := serve(t, "--auth", "cephx", "--keyring", keyring, "--ticket-life", "10m")
	addr, err := wire.ParseAddr(s.addr)
	clitest.Must(t, err)

	// The client's clock goes ahead of the server's, which does not look at it.
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	name := wire.EntityName{Type: wire.Client, ID: "admin"}
	key, err := cephx.ParseKey(clientKey)
	clitest.Must(t, err)
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: name, Key: key, Now: now})
	clitest.Must(t, err)
	client, err := mon.NewClient(mon.Config{Mons: []wire.Addr{addr}, Auth: keys, Clock: quickClock{now}})
	clitest.Must(t, err)
	defer client.Close()
	echoes := make(chan string, 1)
	m := started(t, control.Config{Name: name, Auth: control.Auth{Client: keys}}, client.Dispatcher(), &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		echoes <- string(m.Data)
		return true
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	clitest.Must(t, client.Open(ctx, m))
	if got := client.MonMap(); len(got.Mons) != 1 || got.Mons[0].Name != "a" || !got.Mons[0].Addrs.Contains(addr) || got.FSID == (mon.FSID{}) {
		t.Errorf("monmap %+v, want a alone at %v", got, addr)
	}
	session := client.Conn()
	life := func() time.Duration { return keys.Tickets()[0].Expires.Sub(now()) }
	if l := life(); l > 10*time.Minute || l < 5*time.Minute {
		t.Errorf("tickets live for %v, want 10 minutes", l)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 3 {
		ahead.Add(int64(9 * time.Minute))
		for keys.RenewAt().IsZero() {
			select {
			case <-ctx.Done():
				t.Fatalf("not renewed: %v, %v", keys.Tickets(), client.Err())
			case <-tick.C:
			}
		}
	}
	if client.Conn() != session {
		t.Errorf("the session was lost: %v", client.Err())
	}
	clitest.Must(t, session.Send(control.NewMessage(ping, []byte("front"), []byte("still an echo"))))
	select {
	case got := <-echoes:
		if got != "still an echo" {
			t.Errorf("echo %q", got)
		}
	case <-ctx.Done():
		t.Error("no echo")
	}
}

// A tool's ping gets the answer of a monitor, with any authentication; a ping with data comes
// back.
func TestServeAnswersAPingAsAMonitor(t *testing.T) {
	s := serve(t)
	addr, err := wire.ParseAddr(s.addr)
	clitest.Must(t, err)
	answers := make(chan string, 2)
	m := started(t, control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}}, &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		answers <- string(m.Front)
		return true
	}})
	c, err := m.Connect(addr, wire.Mon)
	clitest.Must(t, err)
	clitest.Must(t, c.Send(control.NewMessage(ping, nil, nil)))
	clitest.Must(t, c.Send(control.NewMessage(ping, []byte("front"), nil)))
	var about struct {
		Health struct{ Status string }
		Mon    struct{ Name, State, Addrs string } `json:"mon_status"`
	}
	text := <-answers
	if len(text) < 4 || json.Unmarshal([]byte(text[4:]), &about) != nil || about.Health.Status != "HEALTH_OK" || about.Mon.Name != "a" ||
		about.Mon.Addrs != "["+s.addr+"]" {
		t.Errorf("answer %q", text)
	}
	if echo := <-answers; echo != "front" {
		t.Errorf("echo %q", echo)
	}
}

// quickClock is a clock that wakes early, so that a client sees that time has passed.
type quickClock struct{ now func() time.Time }

func (c quickClock) Now() time.Time { return c.now() }

func (c quickClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(min(d, 10*time.Millisecond), f).Stop
}

// A client that asks before the server has its messenger gets no map, as an
// empty one would stay with it.
func TestThereIsNoMapBeforeThereIsAMonitor(t *testing.T) {
	if m := new(monitor).monMap("a"); m.Epoch != 0 {
		t.Errorf("%+v", m)
	}
}
