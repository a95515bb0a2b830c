package control_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Many senders at once, on many cores.

// 64 senders while the session is lost and moved again and again, also while it is half open. The
// transaction id says who has sent a message, and as which.
// Matrix: SE-44, FT-32, XC-01, XC-02, XC-11
func TestEverySendersOrderSurvivesFaults(t *testing.T) {
	const senders, each = 64, 25
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		cores := func(c *nodetest.NodeConfig) { c.Plane.Cores = 4 }
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1, cores)
		connector := nodeOf(t, v, "client.2", "LLC", 2, cores)
		for _, f := range []struct {
			at  nodetest.Point
			nth int
		}{
			{nodetest.Read(frame.TagServerIdent), 1}, {nodetest.Write(frame.TagMessage), 100},
			{nodetest.Read(frame.TagSessionReconnectOK), 1}, {nodetest.Write(frame.TagMessage), 400},
			{nodetest.Write(frame.TagSessionReconnect), 3}, {nodetest.Write(frame.TagMessage), 900},
		} {
			connector.Probe.Arm(f.at, f.nth, nodetest.Fault())
		}
		conn := connector.Dial(acceptor)
		var all sync.WaitGroup
		for s := range uint64(senders) {
			all.Go(func() {
				for i := range uint64(each) {
					check(t, conn.Send(numbered(s<<32|i, control.NewMessage(1, nil, nil))))
				}
			})
		}
		all.Wait()
		eventually(t, ctx, "all messages", func() bool { return len(acceptor.Inbox.TIDs()) >= senders*each })
		next := make([]uint64, senders)
		for _, tid := range acceptor.Inbox.TIDs() {
			if s := tid >> 32; s >= senders || tid&(1<<32-1) != next[s] {
				t.Fatalf("message %x, want %d of its sender", tid, next[s])
			}
			next[tid>>32]++
		}
	})
}
