package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// shard is what a core of the server has of its data. Nobody else touches it: no
// lock is needed.
type shard struct{ values map[string]string }

var shards loop.Local[shard]

// A server has a part of its data on each core. A handler that gets a request for
// another core's part has it answered there.
func ExampleMessenger_Core() {
	ctx := context.Background()
	var m *control.Messenger
	cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: loop.Config{Cores: 2}}
	cfg.Plane.Started = func(c *loop.Core) error { // open what the core needs
		shards.Of(c).values = map[string]string{fmt.Sprint("key ", c.ID()): fmt.Sprint("of core ", c.ID())}
		return nil
	}
	m, err := control.New(cfg)
	try(err)
	try(m.Start(&control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		key, due := string(r.Front), c.Later(r)
		home := m.Core(int(key[len(key)-1]-'0') % 2)
		home.Post(&loop.Task{Run: func(at *loop.Core) { // one that is used again saves the allocation
			_ = due.Send(control.NewMessage(1000, []byte(shards.Of(at).values[key]), nil))
		}})
		return true
	}}))
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start())
	conn, err := client.Connect(addrs[0], wire.OSD)
	try(err)
	patience, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, key := range []string{"key 0", "key 1"} {
		reply, err := conn.Call(patience, control.NewMessage(1000, []byte(key), nil))
		try(err)
		fmt.Println(key, string(reply.Front))
		reply.Release()
	}
	try(client.Shutdown(ctx))
	try(m.Shutdown(ctx))
	// Output:
	// key 0 of core 0
	// key 1 of core 1
}
