package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A crowd of one source whose handshakes make progress, and which is larger than the share
// of a source and the line: nobody is to blame, so nobody is charged, and all get in. They
// are no messengers, which would take turns (DialsAtOnce). The server's time stands still: it
// is in no hurry with anybody, however busy the machine is.
// Matrix: RL-02
func TestAnHonestCrowdOfOneSourceIsNotChargedWithFailures(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const bound, crowd = 64, 300
		server := nodeOf(t, v, "osd.1", "SLS", 1, halfOpen(bound), newHandClock().of, func(c *nodetest.NodeConfig) { c.Door.FailureRate, c.Door.FailureBurst = 1, 1 })
		var all sync.WaitGroup
		for i := range uint64(crowd) {
			all.Go(func() {
				for ctx.Err() == nil {
					p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
						Name: wire.EntityName{Type: wire.Client, ID: fmt.Sprint(i)}, From: theirs, Rev0: v.rev0,
						Addr: wire.Addr{Type: wire.AddrAny, Nonce: uint32(i + 1), AddrPort: netip.AddrPortFrom(theirs, 0)},
					}, server.Addr)
					if p.Establish(0, i+1); p.Err() == nil {
						t.Cleanup(p.Close) // not before all are in: without a message it comes to nothing
						return
					}
					p.Close()
					eventually(t, ctx, "room", func() bool { return statsOf(t, server.Messenger).HalfOpen <= bound/2 })
				}
			})
		}
		all.Wait()
		st := statsOf(t, server.Messenger).Counters
		if ctx.Err() != nil || st.Conns != crowd || st.AcceptFailures != 0 || st.Door.Evicted != 0 || st.Door.Waited != 0 {
			t.Errorf("%d are in, %d failed, door %+v, %v", st.Conns, st.AcceptFailures, st.Door, ctx.Err())
		}
	})
}
