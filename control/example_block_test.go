package control_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A server that stores blocks of 4 KiB has them begin on a page, so that they can be
// written with direct I/O as they are. Retain keeps a block where it is, until it
// is stored.
func ExampleConfig_alignFrom() {
	ctx := context.Background()
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Receiving: control.Receiving{AlignFrom: 4096}})
	try(err)
	stored := make(chan string)
	try(m.Start(&control.Dispatcher{Fast: func(_ *control.Conn, r *control.Message) bool {
		r.Retain()
		go func() { // the disk
			stored <- fmt.Sprintf("%d bytes, %d behind a page", len(r.Data), offset(r.Data))
			r.Release()
		}()
		return true
	}}))
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start())
	conn, err := client.Connect(addrs[0], wire.OSD)
	try(err)
	try(conn.Send(control.NewMessage(1000, []byte("block 7"), make([]byte, 4096))))
	fmt.Println(<-stored)
	try(client.Shutdown(ctx))
	try(m.Shutdown(ctx))
	// Output: 4096 bytes, 0 behind a page
}

// Free is told when the messenger has let go of a message, and Outcome what became of
// it: only what was acknowledged has reached the peer's dispatcher.
func ExampleMessage_Outcome() {
	ctx := context.Background()
	addr, stop := echoServer(ctx)
	defer stop()
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(m.Start())
	conn, err := m.Connect(addr, wire.OSD)
	try(err)
	outcome := make(chan control.Outcome, 1)
	block := control.NewMessage(1000, nil, []byte("block"))
	block.Free = func(b *control.Message) { outcome <- b.Outcome() }
	try(conn.Send(block))
	fmt.Println(<-outcome) // the policies of both are lossy
	try(m.Shutdown(ctx))
	// Output: written
}
