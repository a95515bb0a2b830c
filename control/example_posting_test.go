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

// Who knows that data comes says where it belongs: that of a reply by WithBuffer, or
// Request.Buffer, that of any message by its transaction id. It is read there from the
// socket. The memory is the user's again when Call returns, or Done runs.
func ExampleConn_PostBuffer() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
	try(err)
	try(server.Start(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		_ = c.Reply(m, control.NewMessage(1001, nil, bytes.Repeat([]byte("block "), 20_000))) // fails only if the client is gone
		return true
	}}))
	bound, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)
	came := make(chan *control.Message, 1)
	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		m.Retain()
		came <- m
		return true
	}}))
	conn, err := client.Connect(bound[0], wire.OSD)
	try(err)

	memory := make([]byte, 128<<10) // or pages that a disk reads
	reply, err := conn.Call(ctx, control.NewMessage(1000, nil, nil), control.WithBuffer(memory))
	try(err)
	fmt.Println(reply.Posted(), len(reply.Data), string(memory[:5]))
	reply.Release()

	clear(memory)
	posting := &control.Posting{TID: 7, Buffer: memory}
	try(conn.PostBuffer(posting))
	request := control.NewMessage(1000, nil, nil)
	request.TID = posting.TID
	try(conn.Send(request))
	m := <-came
	fmt.Println(m.TID, m.Posted(), string(memory[:5]))
	m.Release()

	posting.TID = 8
	try(conn.PostBuffer(posting))
	try(posting.TakeBack(ctx)) // nobody else touches memory now, whatever comes
	try(client.Shutdown(ctx))
	try(server.Shutdown(ctx))
	// Output:
	// true 120000 block
	// 7 true block
}
