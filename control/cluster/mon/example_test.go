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
	if err != nil {
		fmt.Println(err)
		return
	}
	server, addr, err := startServer(ring)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown(context.Background())

	admin := wire.EntityName{Type: wire.Client, ID: "admin"}
	self, _ := ring.Lookup(admin)
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: admin, Key: self.Key})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := control.New(control.Config{Name: admin, Auth: control.Auth{Client: keys}, Plane: loop.Config{Cores: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Shutdown(context.Background())
	client, err := mon.NewClient(mon.Config{Mons: []wire.Addr{addr}, Auth: keys})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	if err := m.Start(client.Dispatcher()); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.Open(ctx, m); err != nil {
		fmt.Println(err)
		return
	}
	info := client.Conn().Info()
	fmt.Println("protocol", info.Protocol, "auth", info.Auth, "mode", info.Mode)
	fmt.Println("cluster", client.MonMap().FSID, "mon", client.MonMap().Mons[0].Name)
	out, err := client.Command(ctx, map[string]string{"prefix": "whoami"})
	fmt.Printf("%s %v\n", out.Data, err)
	_, err = client.Command(ctx, map[string]string{"prefix": "make tea"})
	fmt.Println(err)
	// Output:
	// protocol msgr2.1 auth cephx mode secure
	// cluster 00112233-4455-6677-8899-aabbccddeeff mon a
	// client.admin may allow r <nil>
	// command "make tea": no such command (invalid argument)
}

// startServer is a monitor with one command.
func startServer(ring *cephx.Keyring) (*control.Messenger, wire.Addr, error) {
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	if err != nil {
		return nil, wire.Addr{}, err
	}
	accept, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
	if err != nil {
		return nil, wire.Addr{}, err
	}
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Nonce: new(uint32), Auth: control.Auth{Server: accept},
		Plane: loop.Config{Cores: 1},
	})
	if err != nil {
		return nil, wire.Addr{}, err
	}
	fsid, err := mon.ParseFSID("00112233-4455-6677-8899-aabbccddeeff")
	if err != nil {
		return nil, wire.Addr{}, err
	}
	err = m.Start(mon.NewServer(mon.ServerConfig{
		Map: func() mon.MonMap {
			return mon.MonMap{FSID: fsid, Epoch: 1, Changed: time.Now(), Mons: []mon.Mon{{Name: "a", Addrs: m.Addrs()}}}
		},
		Command: func(c *control.Conn, command map[string]any, _ []byte) (mon.Output, error) {
			if command["prefix"] != "whoami" {
				return mon.Output{}, fmt.Errorf("no such command")
			}
			return mon.Output{Data: fmt.Appendf(nil, "%v may %s", c.Auth().Entity, c.Auth().Caps)}, nil
		},
	}))
	if err != nil {
		return nil, wire.Addr{}, err
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	return m, addrs[0], err
}
