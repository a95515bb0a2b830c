package control_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A server whose disk is busy stops reading from one client, and goes on later. The
// client's messages wait in the client, and other clients are not held up.
func ExampleConn_Pause() {
	ctx := context.Background()
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
	try(err)
	parts := make(chan string, 3)
	paused := make(chan *control.Conn)
	try(server.Start(&control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		parts <- string(r.Front)
		if string(r.Front) == "first" {
			c.Pause() // what came with it in one read is still dispatched
			go func() { paused <- c }()
		}
		return true
	}}))
	bound, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)
	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start())
	conn, err := client.Connect(bound[0], wire.OSD)
	try(err)
	try(conn.Send(control.NewMessage(1, []byte("first"), nil)))
	fmt.Println(<-parts)
	busy := <-paused
	try(conn.Send(control.NewMessage(1, []byte("second"), nil)))
	fmt.Println("while it is paused:", len(parts))
	busy.Resume()
	fmt.Println(<-parts)
	try(client.Shutdown(ctx))
	try(server.Shutdown(ctx))
	// Output:
	// first
	// while it is paused: 0
	// second
}
