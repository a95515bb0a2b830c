package mon_test

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
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

// startMsgr1 is a monitor of ours at a v1 address; nil: method none.
func startMsgr1(t *testing.T, authority *cephx.Authority) wire.Addr {
	t.Helper()
	m := messenger(t, control.Config{Name: name(t, "mon.a"), Nonce: new(uint32)})
	fsid, err := mon.ParseFSID(fsidText)
	check(t, err)
	var addrs wire.AddrVec
	cfg := mon.ServerConfig{
		Authority: authority,
		Map: func() mon.MonMap {
			return mon.MonMap{FSID: fsid, Epoch: 1, Changed: time.Unix(1000, 0), Mons: []mon.Mon{{Name: "a", Addrs: addrs}}}
		},
		Command: func(c *control.Conn, _ map[string]any, _ []byte) (mon.Output, error) {
			return mon.Output{Data: []byte(c.Auth().Entity.String())}, nil
		},
	}
	if authority == nil {
		var last atomic.Uint64
		cfg.Number = func() uint64 { return 4096 + last.Add(1) }
	}
	check(t, m.Start(mon.NewServer(cfg)))
	addrs, err = m.Bind(wire.Addr{Type: wire.AddrLegacy, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	check(t, err)
	return addrs[0]
}

// joinMsgr1 opens a session at it.
func joinMsgr1(t *testing.T, at wire.Addr, keys *cephx.Client) (*mon.Client, *none.Client, error) {
	t.Helper()
	who := name(t, "client.admin")
	unproven := none.NewClient(who)
	cfg := control.Config{Name: who, Auth: control.Auth{Client: unproven}}
	if keys != nil {
		cfg.Auth.Client = keys
	}
	m := messenger(t, cfg)
	c, err := mon.NewClient(mon.Config{Mons: []wire.Addr{at}, Auth: keys, None: unproven, Retry: 5 * time.Millisecond, Timeout: patience})
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
	if out, err := c.Command(ctx, map[string]string{"prefix": "whoami"}); err != nil || string(out.Data) != "client.admin" {
		t.Errorf("%q, %v", out.Data, err)
	}
	if c.Conn().Info().Protocol != control.Msgr1 {
		t.Errorf("%+v", c.Conn().Info())
	}
}

func TestClientsOfMsgr1LogInByMessages(t *testing.T) {
	c := startCluster(t, time.Hour)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: c.ring})
	check(t, err)
	at := startMsgr1(t, authority)
	own, _ := c.ring.Lookup(name(t, "client.admin"))
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: own.Name, Key: own.Key})
	check(t, err)
	client, _, err := joinMsgr1(t, at, keys)
	check(t, err)
	whoami(t, client)
	if keys.GlobalID() == 0 || keys.RenewAt().IsZero() {
		t.Errorf("number %d, tickets %v", keys.GlobalID(), keys.Tickets())
	}

	wrong, err := cephx.NewKey(cephx.AES, nil, time.Now())
	check(t, err)
	keys, err = cephx.NewClient(cephx.ClientConfig{Name: own.Name, Key: wrong})
	check(t, err)
	if _, _, err := joinMsgr1(t, at, keys); !errors.Is(err, control.ErrAuth) {
		t.Errorf("with a wrong key: %v", err)
	}
	if _, _, err := joinMsgr1(t, at, nil); !errors.Is(err, auth.ErrNoMethod) && !errors.Is(err, control.ErrAuth) {
		t.Errorf("with method none: %v", err)
	}
}

func TestClientsOfMsgr1WithoutKeysAreNumbered(t *testing.T) {
	at := startMsgr1(t, nil)
	for want := uint64(4097); want < 4100; want++ {
		client, unproven, err := joinMsgr1(t, at, nil)
		check(t, err)
		whoami(t, client)
		if got := unproven.GlobalID(); got != want {
			t.Errorf("number %d, want %d", got, want)
		}
	}
}

// Who has not logged in gets an answer to a ping, and to nothing else.
func TestNobodyIsServedByMsgr1BeforeTheLogin(t *testing.T) {
	c := startCluster(t, time.Hour)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: c.ring})
	check(t, err)
	at := startMsgr1(t, authority)
	answers := make(chan uint16, 8)
	m := messenger(t, control.Config{Name: name(t, "client.admin")})
	check(t, m.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		answers <- m.Type
		return true
	}}))
	conn, err := m.Connect(at, wire.Mon)
	check(t, err)
	const command, subscribe, getMap, ping = 50, 15, 5, 2
	for _, typ := range []uint16{command, subscribe, getMap, ping} {
		check(t, conn.Send(control.NewMessage(typ, make([]byte, 64), nil)))
	}
	select {
	case typ := <-answers:
		if typ != ping {
			t.Errorf("answered with a message of type %d", typ)
		}
	case <-time.After(patience):
		t.Error("no answer to the ping")
	}
}
