package control_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// A client and a server that echoes, in one process.
func Example() {
	ctx := context.Background()
	addr, stop := echoServer(ctx)
	defer stop()

	done := make(chan string)
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(m.Start(&control.Dispatcher{Queued: func(c *control.Conn, r *control.Message) { done <- string(r.Front) }}))
	conn, err := m.Connect(addr, wire.OSD)
	try(err)
	try(conn.Send(control.NewMessage(1000, []byte("hello"), nil)))
	fmt.Println(<-done, conn.Info().Protocol)
	try(m.Shutdown(ctx))
	// Output: hello msgr2.1
}

// A server grows by a core and gives one up again while its clients go on.
func ExampleMessenger_AddCore() {
	ctx := context.Background()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: loop.Config{Cores: 2},
	})
	try(err)
	try(m.Start(&control.Dispatcher{Moved: func(c *control.Conn, from int) {
		fmt.Println("connection", c.ID(), "left core", from) // the first call on its new one
	}}))
	_, err = m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)

	added, err := m.AddCore(ctx)
	try(err)
	fmt.Println("added", added, "of", len(m.Cores()))

	patience, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	try(m.RemoveCore(patience, 0))
	fmt.Println("left", len(m.Cores()), "of them core", m.Cores()[0].ID())
	try(m.Shutdown(ctx))
	// Output:
	// added 2 of 3
	// left 2 of them core 1
}

// echoServer accepts clients and sends every message back.
func echoServer(ctx context.Context) (addr wire.Addr, stop func()) {
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
	try(err)
	try(m.Start(&control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		r.Retain()
		if err := c.Send(r); err != nil {
			r.Release() // the client is gone
		}
		return true
	}}))
	bound, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)
	return bound[0], func() { try(m.Shutdown(ctx)) }
}

func try(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
