package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

const (
	typeGreet = 1000
	typeLeave = 1001
)

// greetings is one run of a server. Its handlers are found by the type of the message.
func greetings(greeting string, at wire.Addr) (*control.Messenger, wire.Addr) {
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}}.Surviving())
	try(err)
	reply := func(c *control.Conn, r *control.Message, text string) {
		_ = c.Reply(r, control.NewMessage(r.Type, []byte(text), nil)) // fails only if the client is gone
	}
	try(m.Start(&control.Dispatcher{ByType: map[uint16]func(*control.Conn, *control.Message){
		typeGreet: func(c *control.Conn, r *control.Message) { reply(c, r, greeting+", "+string(r.Front)) },
		typeLeave: func(c *control.Conn, r *control.Message) { reply(c, r, "bye, "+string(r.Front)) },
	}}))
	bound, err := m.Bind(at)
	try(err)
	return m, bound[0]
}

// A connection outlives the server that it was made to: calls go on with the next one at
// the address. Both sides say so by Surviving.
func ExampleConfig_Surviving() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, addr := greetings("hello", wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "a"}}.Surviving())
	try(err)
	away := make(chan error, 1)
	try(client.Start(&control.Dispatcher{Fault: func(_ *control.Conn, err error) { away <- err }}))
	addr.Nonce = 0 // whatever process serves there
	conn, err := client.Connect(addr, wire.OSD)
	try(err)
	call := func(typ uint16) {
		reply, err := conn.Call(ctx, control.NewMessage(typ, []byte("a"), nil))
		try(err)
		fmt.Println(string(reply.Front))
		reply.Release()
	}

	call(typeGreet)
	try(server.Drain(ctx))
	fmt.Println("the server is away:", errors.Is(<-away, loop.ErrPeerClosed))
	server, _ = greetings("welcome back", addr)
	call(typeGreet)
	call(typeLeave)
	try(client.Shutdown(ctx))
	try(server.Shutdown(ctx))
	// Output:
	// hello, a
	// the server is away: true
	// welcome back, a
	// bye, a
}
