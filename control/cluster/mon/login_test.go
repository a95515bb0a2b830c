package mon_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Clients of msgr1 come without an authorizer: messages say who they are, and nothing but
// those is answered before.

// joinMsgr1 opens a session at the v1 address of a monitor, which is tried behind others.
func joinMsgr1(t *testing.T, who string, at wire.Addr, keys *cephx.Client, before ...wire.Addr) (*mon.Client, *none.Client, error) {
	t.Helper()
	unproven := none.NewClient(name(t, who))
	cfg := control.Config{Name: name(t, who), Auth: control.Auth{Client: unproven}}
	if keys != nil {
		cfg.Auth.Client = keys
	}
	m := messenger(t, cfg)
	c, err := mon.NewClient(mon.Config{Mons: append(before, at), Auth: keys, None: unproven, Retry: 5 * time.Millisecond, Timeout: patience})
	check(t, err)
	t.Cleanup(c.Close)
	check(t, m.Start(c.Dispatcher()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return c, unproven, c.Open(ctx, m)
}

func whoami(t *testing.T, c *mon.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := c.Command(ctx, map[string]any{"prefix": "whoami"}); err != nil || string(out.Data) != "client.admin" {
		t.Errorf("%q, %v", out.Data, err)
	}
	if c.Conn().Info().Protocol != control.Msgr1 {
		t.Errorf("%+v", c.Conn().Info())
	}
}

func TestClientsOfMsgr1LogInByMessages(t *testing.T) {
	c := startCluster(t, time.Hour)
	own, _ := c.ring.Lookup(name(t, "client.admin"))
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: own.Name, Key: own.Key})
	check(t, err)
	client, _, err := joinMsgr1(t, "client.admin", c.v1, keys)
	check(t, err)
	whoami(t, client)
	if keys.GlobalID() == 0 || keys.RenewAt().IsZero() {
		t.Errorf("number %d, tickets %v", keys.GlobalID(), keys.Tickets())
	}

	wrong, err := cephx.NewKey(cephx.AES, nil, time.Now())
	check(t, err)
	keys, err = cephx.NewClient(cephx.ClientConfig{Name: own.Name, Key: wrong})
	check(t, err)
	if _, _, err := joinMsgr1(t, "client.admin", c.v1, keys); !errors.Is(err, control.ErrAuth) {
		t.Errorf("with a wrong key: %v", err)
	}
	if _, _, err := joinMsgr1(t, "client.admin", c.v1, nil); !errors.Is(err, auth.ErrNoMethod) && !errors.Is(err, control.ErrAuth) {
		t.Errorf("with method none: %v", err)
	}
}

func TestClientsOfMsgr1WithoutKeysAreNumbered(t *testing.T) {
	c := startCluster(t, 0)
	for want := uint64(4097); want < 4100; want++ {
		client, unproven, err := joinMsgr1(t, "client.admin", c.v1, nil)
		check(t, err)
		whoami(t, client)
		if got := unproven.GlobalID(); got != want {
			t.Errorf("number %d, want %d", got, want)
		}
	}
}

// The connect message of a client names its type, which decides about the policy, and proves nothing.
func TestNobodyActsAsADaemonAtAMonitorOfMsgr1(t *testing.T) {
	c := startCluster(t, time.Hour)
	for _, one := range []struct {
		claims, proves string
		want           error
	}{
		{"osd.0", "client.admin", control.ErrAuth},
		{"mgr.x", "osd.0", control.ErrAuth},
		{"client.admin", "osd.0", nil},
		{"osd.0", "osd.0", nil},
	} {
		own, _ := c.ring.Lookup(name(t, one.proves))
		keys, err := cephx.NewClient(cephx.ClientConfig{Name: own.Name, Key: own.Key})
		check(t, err)
		if _, _, err := joinMsgr1(t, one.claims, c.v1, keys); !errors.Is(err, one.want) {
			t.Errorf("%+v: %v", one, err)
		}
	}
}

// Who has not logged in gets an answer to a ping, and to nothing else.
func TestNobodyIsServedByMsgr1BeforeTheLogin(t *testing.T) {
	c := startCluster(t, time.Hour)
	answers := make(chan uint16, 8)
	m := messenger(t, control.Config{Name: name(t, "client.admin")})
	check(t, m.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		answers <- m.Type
		return true
	}}))
	conn, err := m.Connect(c.v1, wire.Mon)
	check(t, err)
	const command, subscribe, getMap, ping = 50, 15, 5, 2
	for _, typ := range []uint16{typeOther, command, subscribe, getMap, ping} {
		check(t, conn.Send(control.NewMessage(typ, make([]byte, 64), nil)))
	}
	if typ := soon(t, "an answer to the ping", answers); typ != ping {
		t.Errorf("answered with a message of type %d", typ)
	}
}

// A monitor of msgr1 proves itself by its answer to the login. What comes before counts for nothing: one that is none cannot have the
// client take the true monitors for those of another cluster.
func TestNoMonitorOfMsgr1IsBelievedBeforeTheLogin(t *testing.T) {
	c := startCluster(t, time.Hour)
	own, _ := c.ring.Lookup(name(t, "client.admin"))
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: own.Name, Key: own.Key})
	check(t, err)
	rogue := messenger(t, control.Config{Name: name(t, "mon.x")})
	check(t, rogue.Start(&control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
		foreign := mon.MonMap{FSID: mon.FSID{7}, Epoch: 9}
		refusal := append([]byte{2, 0, 0, 0, 0xf3, 0xff, 0xff, 0xff}, make([]byte, 16)...)
		_ = conn.Send(control.NewMessage(4, wire.AppendBlob(nil, foreign.AppendTo(nil)), nil))
		_ = conn.Send(control.NewMessage(18, refusal, nil))
		return true
	}}))
	addrs, err := rogue.Bind(anyPort.WithType(wire.AddrLegacy))
	check(t, err)
	client, _, err := joinMsgr1(t, "client.admin", c.v1, keys, addrs[0])
	check(t, err)
	whoami(t, client)
}
