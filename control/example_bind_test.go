package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A daemon listens on the next free port of a range, and moves to another one
// because the cluster took it for dead under its address.
func ExampleMessenger_Rebind() {
	ctx := context.Background()
	m, err := control.New(control.Config{
		Name:    wire.EntityName{Type: wire.OSD, ID: "7"},
		Binding: control.Binding{Ports: bpf.PortRange{First: 6800, Last: 7568}},
	})
	try(err)
	try(m.Start(&control.Dispatcher{}))
	old, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.68.7:0")})
	try(err)

	now, err := m.Rebind(ctx, 6805) // and not the port that another address of ours has
	try(err)
	before, after := old[0].AddrPort.Port(), now[0].AddrPort.Port()
	fmt.Println("in the range:", 6800 <= before && before <= 7568, 6800 <= after && after <= 7568)
	fmt.Println("others:", after != before && after != 6805, now[0].Nonce != old[0].Nonce)
	try(m.Shutdown(ctx))
	// Output:
	// in the range: true true
	// others: true true
}

// A server that ends delivers what it has answered: nobody new comes in, what is
// queued goes out, and the peers hang up when they have read it.
func ExampleMessenger_Drain() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
	try(err)
	try(server.Start(&control.Dispatcher{Accept: func(c *control.Conn, _ int, _ bool) {
		for i := range 3 {
			_ = c.Send(control.NewMessage(1, fmt.Appendf(nil, "part %d", i), nil)) // fails only if the client is gone
		}
	}}))
	bound, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)
	parts := make(chan string, 3)
	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start(&control.Dispatcher{Queued: func(_ *control.Conn, m *control.Message) { parts <- string(m.Front) }}))
	conn, err := client.Connect(bound[0], wire.OSD)
	try(err)
	try(conn.WaitReady(ctx))
	try(server.Drain(ctx))
	for range 3 {
		fmt.Println(<-parts)
	}
	try(client.Shutdown(ctx))
	// Output:
	// part 0
	// part 1
	// part 2
}
