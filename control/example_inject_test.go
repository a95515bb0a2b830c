package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A program is tried over sockets that fail all the time, and with messages that come
// late. Its sessions are lossless, so that each
// message arrives once all the same.
func ExampleInject() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	inject := control.Inject{
		Seed:           1, // the next run fails in the same way
		SocketFailures: 30,
		Messages:       control.Delay{Probability: 0.5, Max: 10 * time.Millisecond},
	}
	peers := control.LosslessPeer()
	got := make(chan uint64, 1)
	start := func(id string) (*control.Messenger, wire.Addr) {
		m, err := control.New(control.Config{
			Name: wire.EntityName{Type: wire.OSD, ID: id}, Default: &peers, Diagnostics: control.Diagnostics{Inject: inject},
			Timeouts: control.Timeouts{InitialBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond},
		})
		try(err)
		try(m.Start(&control.Dispatcher{Queued: func(_ *control.Conn, m *control.Message) { got <- m.TID }}))
		addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
		try(err)
		return m, addrs[0]
	}
	to, addr := start("0")
	from, _ := start("1")
	conn, err := from.Connect(addr, wire.OSD)
	try(err)
	inOrder := true
	for i := range uint64(50) {
		m := control.NewMessage(7, []byte("hello"), nil)
		m.TID = i
		try(conn.Send(m))
		inOrder = inOrder && <-got == i
	}
	fmt.Println("in order:", inOrder)
	try(from.Shutdown(ctx))
	try(to.Shutdown(ctx))
	// Output:
	// in order: true
}
