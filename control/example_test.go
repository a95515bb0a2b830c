package control_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"reflect"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
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

	patience, cancel := context.WithTimeout(ctx, time.Minute)
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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

// A program is tried over sockets that fail all the time, and with messages that come
// late. Its sessions are lossless, so that each
// message arrives once all the same.
func ExampleInject() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	inject := probe.Inject{
		Seed:           1, // the next run fails in the same way
		SocketFailures: 30,
		Messages:       probe.Delay{Probability: 0.5, Max: 10 * time.Millisecond},
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

// offset is the place of p within its page.
func offset(p []byte) uintptr { return reflect.ValueOf(p).Pointer() % 4096 }

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
	outcome := make(chan dataplane.Outcome, 1)
	block := control.NewMessage(1000, nil, []byte("block"))
	block.Free = func(b *control.Message) { outcome <- b.Outcome() }
	try(conn.Send(block))
	fmt.Println(<-outcome) // the policies of both are lossy
	try(m.Shutdown(ctx))
	// Output: written
}
