package control_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// TH-09: who sends small messages does not wait for a sender of large ones to be
// done: each takes its turn. The places in line are counted, not the time.
func TestSmallMessagesTakeTurnsWithLargeOnes(t *testing.T) {
	const large, larges, small, smalls, senders = 256 << 10, 80, 1 << 10, 10, 10
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		var k keepsake
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(k.dispatcher()), func(c *msgrtest.NodeConfig) {
			c.DispatchBytes, c.ConnBytes = 2*large, -1 // one connection fills it
		})
		throttle := server.DispatchThrottle()
		sends := func(nonce uint32, n, size int) {
			conn := nodeOf(t, v, fmt.Sprintf("client.%d", nonce), "LLC", nonce).Dial(server)
			for range n {
				if err := conn.Send(control.NewMessage(1, bytes.Repeat([]byte("x"), size), nil)); err != nil {
					t.Fatal(err)
				}
			}
		}
		sends(2, larges, large)
		eventually(t, ctx, "the large ones to fill the throttle", func() bool { return throttle.Waiting() == 1 })
		for i := range uint32(senders) {
			sends(3+i, smalls, small)
		}
		eventually(t, ctx, "everybody to stand in line", func() bool { return throttle.Waiting() == 1+senders })
		count := func() (l, s int) {
			for _, m := range server.Inbox.Messages() {
				if len(m.Front) == large {
					l++
				} else {
					s++
				}
			}
			return l, s
		}
		eventually(t, ctx, "all small messages", func() bool {
			k.letGo()
			_, s := count()
			return s == smalls*senders
		})
		// Each small message is behind one large one at the most.
		if l, _ := count(); l > 2+smalls+senders {
			t.Errorf("%d large messages went before the last small one", l)
		}
		eventually(t, ctx, "all large messages", func() bool {
			k.letGo()
			l, _ := count()
			return l == larges && throttle.Used() == 0
		})
	})
}
