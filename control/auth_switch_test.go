package control_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// breaker cuts the connection of the next message that is sent.
type breaker struct{ next chan error }

func newBreaker() *breaker { return &breaker{make(chan error, 1)} }

var errCut = errors.New("cut by the test")

// cut has the next message end its TCP connection.
func (b *breaker) cut() { b.next <- errCut }

// At implements probe.Probe.
func (b *breaker) At(_ context.Context, e probe.Event) error {
	if e.Step != probe.FrameWrite || e.Tag != frame.TagMessage {
		return nil
	}
	select {
	case err := <-b.next:
		return err
	default:
		return nil
	}
}

// The method is changed from cephx to none and back while the messenger
// runs. Connections that are there stay as they are; new ones, and new TCP
// connections of old sessions, follow.
// Matrix: AU-22
func TestAuthCanBeReplacedAtRunTime(t *testing.T) {
	modes := []auth.Mode{auth.CRC}
	keyed, keyedServer := cephxPair(t, modes, modes)
	admin := entity(t, "client.admin")
	unkeyed, unkeyedServer := none.NewClient(admin), none.NewServer(none.ServerConfig{Monitor: true})
	lossless, stateful, cuts := control.LosslessClient(), control.StatefulServer(), newBreaker()
	server := newParty(t, control.Config{Name: entity(t, "mon.a"), Default: &stateful, Auth: control.Auth{Server: keyedServer}}).bind(t)
	// Each is a process of its own: two sessions of one have the same address.
	another := func(by auth.Client, p probe.Probe) *party {
		return newParty(t, control.Config{Name: admin, Default: &lossless, Auth: control.Auth{Client: by}, Diagnostics: control.Diagnostics{Probe: p}})
	}
	calm, shaky := another(keyed, nil), another(keyed, cuts)
	wantMethod := func(from *party, c *control.Conn, m auth.Method) {
		t.Helper()
		exchange(t, from, server, c, []byte("still there"))
		if i, res := c.Info(), c.Auth(); i.Auth != m || res.Method != m {
			t.Errorf("authenticated by %v, %+v; want %v", i.Auth, res, m)
		}
	}
	first, err := calm.dial(t, server, wire.Mon)
	must(t, err)
	session, err := shaky.m.Connect(server.addr, wire.Mon)
	must(t, err)
	for _, c := range []struct {
		client auth.Client
		server auth.Server
		now    auth.Method
		before auth.Method
	}{{unkeyed, unkeyedServer, auth.None, auth.Cephx}, {keyed, keyedServer, auth.Cephx, auth.None}} {
		wantMethod(calm, first, auth.Cephx)
		wantMethod(shaky, session, c.before)
		// The server alone: who still comes with the old method is refused.
		server.m.SetAuth(nil, c.server)
		old := another(keyed, nil)
		if c.before == auth.None {
			old.m.SetAuth(unkeyed, nil)
		}
		if _, err := old.dial(t, server, wire.Mon); !errors.Is(err, auth.ErrNoMethod) || !errors.Is(err, control.ErrAuth) {
			t.Errorf("%v to a server that has %v: %v", c.before, c.now, err)
		}
		wantMethod(calm, first, auth.Cephx)
		wantMethod(shaky, session, c.before)
		old.m.SetAuth(c.client, nil)
		next, err := old.dial(t, server, wire.Mon)
		must(t, err)
		wantMethod(old, next, c.now)
		shaky.m.SetAuth(c.client, nil)
		wantMethod(shaky, session, c.before)
		cuts.cut()
		wantMethod(shaky, session, c.now) // by another TCP connection, and nothing was lost
		wantMethod(calm, first, auth.Cephx)
	}
}
