//go:build !epoll

package control_test

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The queues of the ring are far too small, and so are its receive buffers: the kernel
// keeps answers back, ends what is armed, and finds no buffer. Nobody notices.
func TestARingThatIsMuchTooSmallLosesNothing(t *testing.T) {
	msgrtest.CheckLeaks(t)
	if !uring.Probe(nil).Ring {
		t.Skip("the kernel refuses a ring")
	}
	for _, receive := range []dataplane.ReceiveMode{dataplane.ReceiveAuto, dataplane.ReceiveReady, dataplane.ReceiveBuffers} {
		t.Run(string(receive), func(t *testing.T) {
			ctx := deadline(t)
			v := variant{backend: uring.IOUring}
			hub := nodeOf(t, v, "osd.1", "SLS", 99, withChain(echoer()), func(cfg *msgrtest.NodeConfig) {
				cfg.Plane.Receive = receive
				cfg.Plane.Driver = uring.Config{Backend: uring.IOUring, Entries: 2, Buffers: 1, BufferSize: 4096}
			})
			client := nodeOf(t, v, "client.2", "LC", 2)
			const conns, each = 40, 10
			var list []*control.Conn
			for range conns {
				c, err := client.Connect(hub.Addr, wire.OSD, control.Anonymous())
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, c)
			}
			// Connections that choose go over to the buffers when they have seen some messages.
			tooSmall := func(d uring.Stats) bool {
				return d.SQFull > 0 && d.Overflows > 0 && (receive == dataplane.ReceiveReady || d.NoBuffers > 0)
			}
			sent, st := 0, control.Stats{}
			for round := 0; round < 20 && (round == 0 || !tooSmall(st.Cores[0].Driver)); round++ {
				for i := range uint64(each) {
					for _, c := range list {
						m := control.NewMessage(1, make([]byte, 6000), nil)
						m.TID = i
						if err := c.Send(m); err != nil {
							t.Fatal(err)
						}
						sent++
					}
				}
				if err := msgrtest.Until(ctx, func() bool { return len(client.Inbox.TIDs()) >= sent }); err != nil {
					t.Fatalf("%d of %d answers, %d messages: %v\n%+v\n%+v", len(client.Inbox.TIDs()), sent, len(hub.Inbox.TIDs()), err,
						statsOf(t, hub.Messenger), statsOf(t, client.Messenger))
				}
				st = statsOf(t, hub.Messenger)
			}
			if n := len(hub.Inbox.TIDs()); n != sent {
				t.Errorf("%d of %d arrived", n, sent)
			}
			for _, c := range hub.Conns() {
				cs, err := c.Stats()
				if err != nil || cs.Counters.Faults > 0 {
					t.Errorf("conn %d: %+v, %v", c.ID(), cs.Counters, err)
				}
			}
			d := st.Cores[0].Driver
			t.Logf("%+v", d)
			if !tooSmall(d) {
				t.Errorf("it was not too small: %+v", d)
			}
		})
	}
}
