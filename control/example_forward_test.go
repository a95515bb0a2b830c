package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// An OSD sends what a client wrote to two others, without copying the payload.
// The sessions between them are lossless: each message arrives once and in order,
// whatever happens to TCP connections.
func Example_forward() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got := make(chan string)
	var replicas []wire.Addr
	for _, id := range []string{"1", "2"} {
		_, addr, stop := startOSD(ctx, id, &control.Dispatcher{Queued: func(_ *control.Conn, m *control.Message) {
			got <- string(m.Data)
		}})
		defer stop()
		replicas = append(replicas, addr)
	}

	var peers atomic.Pointer[[]*control.Conn] // a core reads what this goroutine sets
	peers.Store(new([]*control.Conn))
	primary, addr, stop := startOSD(ctx, "0", &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		for _, peer := range *peers.Load() {
			// The clone keeps the payload until the peer has acknowledged it.
			clone := m.Clone()
			if err := peer.Send(clone); err != nil {
				clone.Release() // the queue is full, or the session over
			}
		}
		return true
	}})
	defer stop()
	var connected []*control.Conn
	for _, replica := range replicas {
		peer, err := primary.Connect(replica, wire.OSD)
		try(err)
		connected = append(connected, peer)
	}
	peers.Store(&connected)

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start(&control.Dispatcher{}))
	conn, err := client.Connect(addr, wire.OSD)
	try(err)
	try(conn.Send(control.NewMessage(1000, nil, []byte("payload"))))
	fmt.Println(<-got, <-got)
	try(client.Shutdown(ctx))
	// Output: payload payload
}

// startOSD starts an OSD with lossless sessions to other OSDs and lossy ones to
// clients.
func startOSD(ctx context.Context, id string, d *control.Dispatcher) (*control.Messenger, wire.Addr, func()) {
	m, err := control.New(control.Config{
		Name:     wire.EntityName{Type: wire.OSD, ID: id},
		Policies: map[wire.EntityType]control.Policy{wire.OSD: control.LosslessPeer(), wire.Client: control.StatelessServer()},
	})
	try(err)
	try(m.Start(d))
	bound, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)
	return m, bound.V2(), func() { try(m.Shutdown(ctx)) }
}
