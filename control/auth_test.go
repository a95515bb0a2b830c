package control_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// party is one messenger of a pair that authenticate each other. It sends all messages back.
type party struct {
	m    *control.Messenger
	addr wire.Addr // if it accepts
}

// authMessenger starts a messenger that ends with the test.
func authMessenger(t *testing.T, cfg control.Config, chain ...*control.Dispatcher) *control.Messenger {
	t.Helper()
	cfg.Plane = loop.Config{Cores: 1, StallAfter: time.Minute} // a busy machine is no stall, which would be logged
	return startMessenger(t, cfg, chain...)
}

func newParty(t *testing.T, cfg control.Config) *party {
	t.Helper()
	return &party{m: authMessenger(t, cfg, echoAll())}
}

func (e *party) bind(t *testing.T) *party {
	t.Helper()
	e.addr = listenOn(t, e.m)
	return e
}

func listenOn(t testing.TB, m *control.Messenger) wire.Addr {
	t.Helper()
	return bind(t, m, v2(loopback(0).Addr(), 0))[0]
}

// dial connects once and returns the connection and how it went.
func (e *party) dial(t *testing.T, to *party, typ wire.EntityType) (*control.Conn, error) {
	t.Helper()
	conn := connect(t, e.m, to.addr, typ, control.Once(), control.Anonymous())
	ctx := deadline(t)
	err := conn.WaitReady(ctx)
	if ctx.Err() != nil {
		t.Fatalf("no outcome: %v", err)
	}
	return conn, err
}

func entity(t testing.TB, s string) wire.EntityName {
	t.Helper()
	n, err := wire.ParseEntityName(s)
	must(t, err)
	return n
}

// accepted is the server's side of the only connection, when it is ready.
func (e *party) accepted(t *testing.T) *control.Conn {
	t.Helper()
	ctx := deadline(t)
	conns := e.m.Conns()
	if len(conns) != 1 {
		t.Fatalf("%d connections", len(conns))
	}
	must(t, conns[0].WaitReady(ctx))
	return conns[0]
}

// cephxPair makes both sides of a login to a monitor.
func cephxPair(t *testing.T, clientModes, serverModes []auth.Mode) (auth.Client, auth.Server) {
	t.Helper()
	const text = "[mon.]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n[client.admin]\nkey = AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw==\ncaps mon = \"allow r\"\n"
	ring, err := cephx.ReadKeyring(strings.NewReader(text))
	must(t, err)
	admin, _ := ring.Lookup(entity(t, "client.admin"))
	client, err := cephx.NewClient(cephx.ClientConfig{
		Name: admin.Name, Key: admin.Key, Modes: func(wire.EntityType) []auth.Mode { return clientModes },
	})
	must(t, err)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	must(t, err)
	server, err := cephx.NewServer(cephx.ServerConfig{
		Own: wire.Mon, Authority: authority, Modes: func(wire.EntityType) []auth.Mode { return serverModes },
	})
	must(t, err)
	return client, server
}

// Whoever requires secure gets it, whatever the other side and the own auth prefer, on both
// sides. That it gets nothing else is a row of handshake2.
func TestRequiredSecureIsNeverLess(t *testing.T) {
	both, only := []auth.Mode{auth.CRC, auth.Secure}, []auth.Mode{auth.Secure} // crc preferred
	for _, c := range []struct {
		name                         string
		clientRequires, serverAllows []auth.Mode
		want                         auth.Mode
	}{
		{"nobody requires", nil, nil, auth.CRC},
		{"client requires", only, nil, auth.Secure},
		{"server requires", nil, only, auth.Secure},
	} {
		t.Run(c.name, func(t *testing.T) {
			authClient, authServer := cephxPair(t, both, both)
			client := newParty(t, control.Config{Name: entity(t, "client.admin"), Auth: control.Auth{Client: authClient, Modes: c.clientRequires}})
			server := newParty(t, control.Config{Name: entity(t, "mon.a"), Auth: control.Auth{Server: authServer, Modes: c.serverAllows}}).bind(t)
			conn, err := client.dial(t, server, wire.Mon)
			must(t, err)
			exchange(t, conn, []byte("hello"))
			wantNegotiated(t, conn, c.want, auth.Cephx)
			wantNegotiated(t, server.accepted(t), c.want, auth.Cephx)
		})
	}
}

func wantNegotiated(t *testing.T, c *control.Conn, mode auth.Mode, method auth.Method) {
	t.Helper()
	i, res := c.Info(), c.Auth()
	if i.Mode != mode || i.Auth != method || res == nil || res.Mode != mode || res.Method != method {
		t.Errorf("negotiated %+v, %+v; want %v and %v", i, res, mode, method)
	}
	if i.Accepted && (i.PeerEntity != entity(t, "client.admin") || res.GlobalID == 0 || len(res.Caps) == 0 || res.Session == nil) {
		t.Errorf("accepted %+v, %+v: want who it is", i, res)
	}
	if res != nil && (res.SessionKey != nil || res.ConnectionSecret != nil) {
		t.Error("the secrets are still there")
	}
	st, err := c.Stats()
	if err != nil || st.Mode != mode.String() || st.Auth != method.String() {
		t.Errorf("statistics: mode %q, auth %q, %v", st.Mode, st.Auth, err)
	}
}

// exchange has the peer send data back.
func exchange(t *testing.T, conn *control.Conn, data []byte) {
	t.Helper()
	reply, err := conn.Call(deadline(t), control.NewMessage(42, []byte("front"), data))
	must(t, err)
	defer reply.Release()
	if !bytes.Equal(reply.Data, data) {
		t.Fatalf("%d other bytes came back, want %d", len(reply.Data), len(data))
	}
}

func methods(m ...wire.CompressionMethod) []wire.CompressionMethod { return m }

// Data is compressed by each method where both sides want it for the other and the mode allows
// it, from its minimum on.
// Matrix: FR-31, FR-34
func TestDataIsCompressedWhereBothSidesWantIt(t *testing.T) {
	all, any := compress.Methods(), []wire.EntityType{wire.Mon, wire.Client}
	both, safe := control.Compression{Methods: all, Peers: any}, control.Compression{Methods: all, Peers: any, Secure: true}
	type row struct {
		name           string
		client, server control.Compression
		mode           auth.Mode
		want           string
	}
	rows := []row{
		{"off at the client", control.Compression{}, both, auth.CRC, "none"},
		{"off at the server", both, control.Compression{}, auth.CRC, "none"},
		{"not towards mons", control.Compression{Methods: all}, both, auth.CRC, "none"},
		{"not towards clients", both, control.Compression{Methods: all}, auth.CRC, "none"},
		{"not in secure", both, both, auth.Secure, "none"},
		{"not in secure for one", safe, both, auth.Secure, "none"},
		{"in secure for both", safe, safe, auth.Secure, "snappy"},
	}
	for _, m := range all {
		rows = append(rows, row{m.String(), control.Compression{Methods: methods(m), Peers: any}, both, auth.CRC, m.String()})
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			modes := []auth.Mode{c.mode}
			authClient, authServer := cephxPair(t, modes, modes)
			client := newParty(t, control.Config{Name: entity(t, "client.admin"), Auth: control.Auth{Client: authClient}, Protocol: control.Protocol{Compression: c.client}})
			server := newParty(t, control.Config{Name: entity(t, "mon.a"), Auth: control.Auth{Server: authServer}, Protocol: control.Protocol{Compression: c.server}}).bind(t)
			conn, err := client.dial(t, server, wire.Mon)
			must(t, err)
			other := server.accepted(t)
			if a, b := conn.Info().Compression, other.Info().Compression; a != c.want || b != c.want || conn.Info().Mode != c.mode {
				t.Errorf("negotiated %q and %q in mode %v, want %q", a, b, conn.Info().Mode, c.want)
			}
			for _, n := range []int{0, 1, 900, 1024, 5000, 64 << 10, 1 << 20, 5 << 20} {
				before := statsOf(t, client.m).Cores[0].BytesOut
				exchange(t, conn, bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n])
				took := int(statsOf(t, client.m).Cores[0].BytesOut - before)
				if small := took < n; small != (n >= 1024 && c.want != "none") || n == 1<<20 && small && took > 1<<18 {
					t.Errorf("%d bytes took %d", n, took)
				}
			}
		})
	}
}
