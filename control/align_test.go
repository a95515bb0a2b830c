package control_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// offset is where p lies within its page.
func offset(p []byte) uintptr { return reflect.ValueOf(p).Pointer() % 4096 }

func TestBlocksOf4KiBBeginOnAPageWhereThatIsAskedFor(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const blocks = 20
		got := make(chan uintptr, blocks)
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
			got <- offset(m.Data)
			return true
		}}), func(c *msgrtest.NodeConfig) { c.AlignFrom = 4096 })
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(server)
		for i := range blocks {
			m := control.NewMessage(1, make([]byte, i), make([]byte, 4096+i%2*100))
			if err := conn.SendContext(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		for i := range blocks {
			select {
			case at := <-got:
				if at != 0 {
					t.Errorf("block %d begins %d bytes behind a page", i, at)
				}
			case <-ctx.Done():
				t.Fatal("a block does not arrive")
			}
		}
	})
}
