package control_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// SE-46: cookies are never 0 and never used twice, and a lossy session has none
// of the server.
func TestCookiesAreNotReused(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		seen := map[uint64]string{}
		note := func(cookie uint64, whose string) {
			if other, ok := seen[cookie]; ok || cookie == 0 {
				t.Errorf("%s has cookie %#x, as %s", whose, cookie, other)
			}
			seen[cookie] = whose
		}
		s := playTo(t, ctx, v, "SFS", true)
		for i := range uint64(30) {
			_, si := s.establish(clientCookie+i, 5+i) // each time the peer has forgotten all
			note(si.Cookie, fmt.Sprintf("session %d of the acceptor", i))
		}
		for i := range 20 {
			c := stageFor(t, ctx, v, "LLC")
			p, ci := c.establish()
			note(ci.Cookie, fmt.Sprintf("session %d of the connector", i))
			c.conn.MarkDown()
			p.ExpectEnd()
		}
		lossy := playTo(t, ctx, v, "SLS", true)
		if _, si := lossy.establish(clientCookie, 5); si.Cookie != 0 || si.Flags&wire.IdentLossy == 0 {
			t.Errorf("a lossy session has %+v", si)
		}
	})
}

// XC-15: no two attempts of one messenger have the same global_seq, however
// many start at once.
func TestGlobalSeqIsUniqueUnderContention(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const attempts = 48
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1, func(c *msgrtest.NodeConfig) { c.Plane.Cores = 2 })
		connector := nodeOf(t, v, "client.2", "LC", 2, func(c *msgrtest.NodeConfig) { c.Plane.Cores = 4 })
		conns := make([]*control.Conn, attempts)
		var all sync.WaitGroup
		for i := range conns {
			all.Go(func() { conns[i], _ = connector.Connect(acceptor.Addr, wire.OSD, control.Anonymous()) })
		}
		all.Wait()
		seen := map[uint64]bool{}
		for i, c := range conns {
			if c == nil {
				t.Fatalf("connection %d was refused", i)
			}
			if err := c.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			st, err := c.Stats()
			if err != nil || seen[st.GlobalSeq] || st.GlobalSeq == 0 {
				t.Errorf("global_seq %d (%v) comes twice", st.GlobalSeq, err)
			}
			seen[st.GlobalSeq] = true
		}
	})
}
