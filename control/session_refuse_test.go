package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Session frames that are late, impossible, or incomplete.

// RA-22: an old socket of the peer, held between AUTH_SIGNATURE and
// CLIENT_IDENT, wakes up when its successor is established.
func TestSupersededSocketThatWakesUpChangesNothing(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		late := s.dial()
		late.Handshake()
		s.must(late)
		p, _ := s.establish(clientCookie, 6)
		s.talks(p, 1)
		late.SendPayload(frame.TagClientIdent, late.ClientIdent(clientCookie, 5))
		late.SendMessage(frame.MessageHeader{Seq: 2, TID: 99}, []byte("ignored"), nil, nil)
		late.ExpectEnd()
		s.must(late)
		s.talks(p, 2)
		s.node.Await(ctx, "closed A(1,1,0,0)", "established A(1,1,0,1)")
	})
}
