package control_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

func newMessenger(t testing.TB, name string, cores int, backend uring.Backend) *control.Messenger {
	t.Helper()
	n, err := wire.ParseEntityName(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := control.Config{Name: n, Plane: dataplane.Config{Cores: cores, Driver: uring.Config{Backend: backend}}}
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestMessagesOfEverySizeAreEchoedInOrder(t *testing.T) {
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			server := newMessenger(t, "osd.0", 2, backend)
			err := server.Start(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
				m.Retain()
				if err := c.Send(m); err != nil {
					m.Release()
				}
				return true
			}})
			if err != nil {
				t.Fatal(err)
			}
			addrs, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
			if err != nil {
				t.Fatal(err)
			}
			client := newMessenger(t, "client.admin", 1, backend)
			type reply struct {
				tid         uint64
				front, data []byte
			}
			replies := make(chan reply, 1024)
			if err := client.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				replies <- reply{m.TID, bytes.Clone(m.Front), bytes.Clone(m.Data)}
				return true
			}}); err != nil {
				t.Fatal(err)
			}
			conn, err := client.Connect(addrs[0], wire.OSD)
			if err != nil {
				t.Fatal(err)
			}
			sizes := []int{0, 1, 64, 500, 2047, 2048, 4096, 65535, 65536, 65537, 1 << 20, 4 << 20}
			const rounds = 5
			go func() {
				tid := uint64(0)
				for r := range rounds {
					for _, n := range sizes {
						m := control.NewMessage(42, []byte(fmt.Sprint("front", tid)), bytes.Repeat([]byte{byte(r + n)}, n))
						m.TID = tid
						tid++
						if err := conn.Send(m); err != nil {
							t.Error(err)
							return
						}
					}
				}
			}()
			tid := uint64(0)
			for r := range rounds {
				for _, n := range sizes {
					select {
					case got := <-replies:
						if got.tid != tid || string(got.front) != fmt.Sprint("front", tid) || !bytes.Equal(got.data, bytes.Repeat([]byte{byte(r + n)}, n)) {
							t.Fatalf("reply %d: got tid %d front %q and %d bytes", tid, got.tid, got.front, len(got.data))
						}
						tid++
					case <-time.After(time.Minute):
						st, _ := client.Stats()
						t.Fatalf("no reply to %d of %d bytes: state %v err %v %+v", tid, n, conn.State(), conn.Err(), st)
					}
				}
			}
		})
	}
}
