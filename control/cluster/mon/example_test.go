package mon_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// A server has a keyring of its own and lets in whoever is in it: our clients,
// and the tools of a real cluster, too. A client logs in and runs a command.
func Example() {
	ring, err := cephx.ReadKeyring(strings.NewReader(`
[mon.]
	key = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==
[client.admin]
	key = AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw==
	caps mon = "allow r"
`))
	must(err)
	server, addr := startServer(ring)
	defer server.Shutdown(context.Background())

	admin := wire.EntityName{Type: wire.Client, ID: "admin"}
	self, _ := ring.Lookup(admin)
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: admin, Key: self.Key})
	must(err)
	m, err := control.New(control.Config{Name: admin, Auth: control.Auth{Client: keys}, Plane: loop.Config{Cores: 1}})
	must(err)
	defer m.Shutdown(context.Background())
	client, err := mon.NewClient(mon.Config{Mons: []wire.Addr{addr}, Auth: keys})
	must(err)
	defer client.Close()
	must(m.Start(client.Dispatcher()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(client.Open(ctx, m))
	info := client.Conn().Info()
	fmt.Println("protocol", info.Protocol, "auth", info.Auth, "mode", info.Mode)
	fmt.Println("cluster", client.MonMap().FSID, "mon", client.MonMap().Mons[0].Name)
	out, err := client.Command(ctx, map[string]any{"prefix": "whoami"})
	fmt.Printf("%s %v\n", out.Data, err)
	_, err = client.Command(ctx, map[string]any{"prefix": "make tea"})
	fmt.Println(err)
	// Output:
	// protocol msgr2.1 auth cephx mode secure
	// cluster 00112233-4455-6677-8899-aabbccddeeff mon a
	// client.admin may allow r <nil>
	// command "make tea": no such command (invalid argument)
}

// startServer is a monitor with one command.
func startServer(ring *cephx.Keyring) (*control.Messenger, wire.Addr) {
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	must(err)
	accept, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
	must(err)
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Nonce: new(uint32), Auth: control.Auth{Server: accept},
		Plane: loop.Config{Cores: 1},
	})
	must(err)
	fsid, err := mon.ParseFSID("00112233-4455-6677-8899-aabbccddeeff")
	must(err)
	must(m.Start(mon.NewServer(mon.ServerConfig{
		Map: func() mon.MonMap {
			return mon.MonMap{FSID: fsid, Epoch: 1, Changed: time.Now(), Mons: []mon.Mon{{Name: "a", Addrs: m.Addrs()}}}
		},
		Command: func(c *control.Conn, command map[string]any, _ []byte) (mon.Output, error) {
			if command["prefix"] != "whoami" {
				return mon.Output{}, fmt.Errorf("no such command")
			}
			return mon.Output{Data: fmt.Appendf(nil, "%v may %s", c.Auth().Entity, c.Auth().Caps)}, nil
		},
	})))
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	must(err)
	return m, addrs[0]
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
