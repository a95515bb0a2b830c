package cephx_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A client logs in to a monitor. Usually the messenger passes the payloads; here they
// are handed over directly.
func Example() {
	ring, err := cephx.ReadKeyring(strings.NewReader(`
[client.admin]
	key = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==
	caps mon = "allow r"
	caps osd = "allow rw"
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	admin := wire.EntityName{Type: wire.Client, ID: "admin"}
	entity, _ := ring.Lookup(admin)
	client, err := cephx.NewClient(cephx.ClientConfig{Name: admin, Key: entity.Key})
	if err != nil {
		fmt.Println(err)
		return
	}
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	if err != nil {
		fmt.Println(err)
		return
	}
	mon, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	connector, _ := client.Start(ctx, wire.Mon)
	method, modes, request, _ := connector.Request(ctx)
	acceptor, _ := mon.Start(ctx, wire.Client, method, modes[0])
	challenge, _, _ := acceptor.Handle(ctx, request)
	proof, _ := connector.ReplyMore(ctx, challenge)
	reply, accepted, err := acceptor.Handle(ctx, proof)
	if err != nil {
		fmt.Println("refused with", auth.Errno(err))
		return
	}
	if _, err := connector.Done(ctx, accepted.GlobalID, accepted.Mode, reply); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(accepted.Entity, "may", accepted.Caps, "in mode", accepted.Mode)
	for _, t := range client.Tickets() {
		fmt.Println("ticket for", t.Service)
	}
	fmt.Println("key:", entity.Key)
	// Output:
	// client.admin may allow r in mode secure
	// ticket for mon
	// ticket for osd
	// ticket for mgr
	// ticket for auth
	// key: [redacted]
}

// A keyring file is parsed with line numbers in the errors.
func ExampleReadKeyring() {
	_, err := cephx.ReadKeyring(strings.NewReader("[client.admin]\n\tkey = AQ==\n"))
	fmt.Println(err)
	// Output: keyring: line 2: key: malformed input: truncated: need 2 bytes at offset 0, have 1
}
