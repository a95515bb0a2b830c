package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Numbers that nobody can have: what comes in the name of a peer does not keep
// the peer out, and what a peer says of ours does not change ours.

// acknowledge has the peer acknowledge all that the node has sent, up to seq.
func (s *scripts) acknowledge(p *msgrtest.Peer, seq uint64) {
	s.t.Helper()
	p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: seq})
	eventually(s.t, s.ctx, "the ack", func() bool {
		st, err := s.node.Lookup(s.addr).Stats()
		return err == nil && st.IO.Sent == 0
	})
}

// Who can name the session comes with the highest numbers that are taken. The
// owner gets in again, by SESSION_RECONNECT and by CLIENT_IDENT, as soon as no
// handshake can be under way any more that is older.
// Matrix: HI-13, HI-17
func TestHighNumbersInAnothersNameLockNobodyOut(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var clock pressedClock
		s := playTo(t, ctx, v, "SFS", true, clock.young)
		p, si := s.establish(clientCookie, 5)
		s.talks(p, 1)
		attack := s.reconnect(clientCookie, si.Cookie, 1<<62, 1<<62, 1)
		attack.ExpectReconnectOK()
		s.must(attack)
		attack.Close()

		globalSeq := uint64(5)
		again := func(what string, enter func(p *msgrtest.Peer) bool) {
			clock.pass(handshakeLimit + time.Second)
			globalSeq++
			p = s.dial()
			p.Handshake()
			s.must(p)
			if !enter(p) {
				t.Fatalf("%s is refused: %v", what, p.Err())
			}
		}
		again("the owner's SESSION_RECONNECT", func(p *msgrtest.Peer) bool {
			p.SendPayload(frame.TagSessionReconnect, p.SessionReconnect(clientCookie, si.Cookie, globalSeq, globalSeq-5, 1))
			return p.Next().Tag == frame.TagSessionReconnectOK
		})
		s.talks(p, 2)
		s.acknowledge(p, 2)

		attack = s.dial()
		attack.Establish(clientCookie, 1<<62)
		s.must(attack)
		attack.Close()
		again("the owner's CLIENT_IDENT", func(p *msgrtest.Peer) bool {
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, globalSeq))
			return p.Next().Tag == frame.TagServerIdent
		})
		s.talks(p, 1)
	})
}
