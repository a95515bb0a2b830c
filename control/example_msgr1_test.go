package control_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A daemon has an address for each protocol, as those of Ceph do. Who connects to the
// v1 address speaks msgr1, and everything else is as in msgr2.
func ExampleMessenger_Bind() {
	ctx := context.Background()
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
	try(err)
	try(server.Start(&control.Dispatcher{}))
	loopback := netip.MustParseAddrPort("127.0.0.1:0")
	bound, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: loopback}, wire.Addr{Type: wire.AddrLegacy, AddrPort: loopback})
	try(err)

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start())
	for _, addr := range bound {
		conn, err := client.Connect(addr, wire.OSD)
		try(err)
		try(conn.WaitReady(ctx))
		fmt.Println(conn.Info().Protocol)
	}
	try(client.Shutdown(ctx))
	try(server.Shutdown(ctx))
	// Output:
	// msgr2.1
	// msgr1
}
