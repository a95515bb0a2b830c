package control_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Races of two dialling ends by chance, between many cores, between ends that
// want different things, and between addresses that are hard to tell apart.

// RA-13: on several cores everybody sees the same connection, during the race
// and behind it.
func TestRaceOnManyCoresHasOneSurvivor(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		cores := func(c *msgrtest.NodeConfig) { c.Plane.Cores = 4 }
		us, them := nodeOf(t, v, "osd.1", "LP", 2, cores), nodeOf(t, v, "osd.2", "LP", 1)
		b := us.Probe.Arm(msgrtest.Write(frame.TagClientIdent), 1, msgrtest.Block())
		conn := us.Dial(them)
		us.Hit(ctx, b)
		them.Dial(us)
		var all sync.WaitGroup
		seen := make([]*control.Conn, 16)
		for i := range seen {
			all.Go(func() {
				for range 50 {
					if seen[i] = us.Dial(them); seen[i] != conn || us.Lookup(them.Addr) != conn {
						return
					}
				}
				if conn.WaitReady(ctx) == nil {
					seen[i] = us.Dial(them)
				}
			})
		}
		all.Wait()
		for i, c := range seen {
			if c != conn {
				t.Fatalf("caller %d got another connection", i)
			}
			send(t, c, uint64(i))
		}
		us.Await(ctx, "established C(1,1,0,0) A(0,0,0,1)", "replaced A(1,1,0,0)")
		eventually(t, ctx, "all messages", func() bool { return len(them.Inbox.TIDs()) == len(seen) })
	})
}
