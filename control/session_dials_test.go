package control_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The server accepts, and says nothing. Those who wait for their turn are not held up by
// that when they end, and somebody else is not at all.
func TestDialsBeyondTheBoundWaitUntilOthersAreDone(t *testing.T) {
	const extra = 10
	overVariants(t, slices.Concat(newest, msgr1Variants), func(t *testing.T, ctx context.Context, v variant) {
		mute, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		accepted := make(chan net.Conn, control.DialsAtOnce+extra)
		t.Cleanup(func() {
			mute.Close()
			for c := range accepted { // what nobody has taken
				c.Close()
			}
		})
		go func() {
			for {
				c, err := mute.Accept()
				if err != nil {
					close(accepted)
					return
				}
				accepted <- c
			}
		}()
		patient := func(c *nodetest.NodeConfig) { c.Timeouts.Handshake = time.Hour } // however slow the machine is
		client, other := nodeOf(t, v, "client.1", "LLC", 1, patient), nodeOf(t, v, "osd.2", "SFS", 2)
		at := wire.Addr{Type: other.Addr.Type, AddrPort: netip.MustParseAddrPort(mute.Addr().String())}
		var conns []*control.Conn
		for range control.DialsAtOnce + extra {
			c, err := client.Connect(at, wire.OSD, control.Anonymous(), control.Once())
			must(t, err)
			conns = append(conns, c)
		}
		take := func(n int) (list []net.Conn) {
			t.Helper()
			for range n {
				select {
				case c := <-accepted:
					list = append(list, c)
					t.Cleanup(func() { c.Close() })
				case <-ctx.Done():
					t.Fatalf("%d sockets, want %d", len(list), n)
				}
			}
			return list
		}
		first := take(control.DialsAtOnce)
		must(t, client.Dial(other).WaitReady(ctx))
		if n := len(accepted); n != 0 {
			t.Errorf("%d more sockets", n)
		}
		must(t, first[0].Close()) // its connection has one attempt
		take(1)
		for _, c := range conns {
			c.MarkDown()
		}
		for _, c := range conns {
			select {
			case <-c.Closed():
			case <-ctx.Done():
				t.Fatal("not closed")
			}
		}
	})
}
