package control_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Cookies are never 0 and never used twice, and a lossy session has none
// of the server.
// Matrix: SE-46
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
