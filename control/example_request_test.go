package control_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A request is a message with a transaction id, and its answer comes back with
// the same one. Call waits for it; Start leaves it to the core, for many requests
// at once. The server answers now, or when it can.
func ExampleConn_Call() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addr, stop := upperServer(ctx)
	defer stop()

	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(m.Start())
	conn, err := m.Connect(addr, wire.OSD)
	try(err)
	for _, question := range []string{"one", "two"} {
		reply, err := conn.Call(ctx, control.NewMessage(typeNow, []byte(question), nil))
		try(err)
		fmt.Println(string(reply.Front))
		reply.Release()
	}

	answers := make(chan string)
	request := &control.Request{
		Message: control.NewMessage(typeSoon, []byte("three"), nil),
		Done: func(_ *control.Request, reply *control.Message, err error) { // on the core
			if err != nil {
				answers <- err.Error()
				return
			}
			answers <- string(reply.Front)
		},
	}
	try(conn.Start(request))
	fmt.Println(<-answers)
	try(m.Shutdown(ctx))
	// Output:
	// ONE
	// TWO
	// THREE
}

const (
	typeNow  = 1000
	typeSoon = 1001
)

// upperServer is a server that answers on the core, or later from a goroutine.
func upperServer(ctx context.Context) (addr wire.Addr, stop func()) {
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
	try(err)
	try(m.Start(&control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		answer := control.NewMessage(r.Type, bytes.ToUpper(r.Front), nil)
		if r.Type == typeNow {
			_ = c.Reply(r, answer) // fails only if the client is gone, or does not read
			return true
		}
		due := c.Later(r) // r itself is gone behind this call
		go func() {
			_ = due.Send(answer)
		}()
		return true
	}}))
	bound, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)
	return bound[0], func() { try(m.Shutdown(ctx)) }
}
