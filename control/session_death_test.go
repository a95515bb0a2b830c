package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// What becomes of a session whose peer is gone: killed, frozen, or restarted.

// watchful has a node notice a peer that is silent.
func watchful(c *msgrtest.NodeConfig) {
	c.KeepaliveEvery, c.KeepaliveTimeout = stallDeadline/8, stallDeadline
}

// restart ends a node and starts another at its port. It runs under load.
func restart(t *testing.T, ctx context.Context, v variant, n *msgrtest.Node, policy string, nonce uint32) *msgrtest.Node {
	t.Helper()
	if err := n.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	fresh := nodeOf(t, v, "osd.1", policy, nonce, withChain(echoer()), func(c *msgrtest.NodeConfig) { c.Unbound = true })
	addrs, err := fresh.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: n.Addr.AddrPort})
	if err != nil {
		t.Fatal(err)
	}
	fresh.Addr = addrs.V2()
	return fresh
}

// load sends messages until it is told to stop.
func load(c *control.Conn) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			m := control.NewMessage(1, nil, nil)
			if c.Send(m) != nil {
				m.Release() // the connection is over
				return
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	}()
	return func() { close(over); <-done }
}

// The process at an address is another one, with the nonce of the old
// one or with its own.
// Matrix: FT-29
func TestClientsOfARestartedListenerAreReset(t *testing.T) {
	for _, pair := range []pairing{{"LC", "SLS"}, {"LLC", "SFS"}, {"LP", "LP"}, {"LPR", "LPR"}} {
		for _, nonce := range []uint32{3, 4} {
			t.Run(title(pair.connector, fmt.Sprintf("nonce%+d", nonce-3)), func(t *testing.T) {
				everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
					old := nodeOf(t, v, "osd.1", pair.acceptor, 3, withChain(echoer()))
					client := nodeOf(t, v, connectorName(pair.connector), pair.connector, 2)
					conn := client.Dial(old)
					stop := load(conn)
					eventually(t, ctx, "some load", func() bool { return len(client.Inbox.TIDs()) > 50 })
					fresh := restart(t, ctx, v, old, pair.acceptor, nonce)
					switch {
					case pair.lossy():
						<-conn.Closed()
						eventually(t, ctx, "the reset event", func() bool { return client.Probe.Objects()[0].Resets == 1 })
					case nonce == 3:
						client.Await(ctx, "established C(2+,2,1+,2) R(0,1)")
					default:
						// Nobody is at the old address any more, and the client
						// does not take somebody else for it.
						eventually(t, ctx, "attempts that fail", func() bool {
							st, err := conn.Stats()
							return err == nil && st.Counters.Attempts > 4 && st.Counters.Ready == 1
						})
						conn.MarkDown()
					}
					stop()
					if conn.State() == control.StateClosing {
						conn = client.Dial(fresh)
					}
					send(t, conn, 77)
					awaitTID(t, ctx, client, 1077)
				})
			})
		}
	}
}
