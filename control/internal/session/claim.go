package session

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The check of a claim. A peer came and said that it is at an address. We dial that
// address and send a SESSION_RECONNECT for the session, with a global_seq that is too low,
// so that it is refused in any case. A process that has the session answers RETRY_GLOBAL
// with the number that it knows from our SERVER_IDENT; one that does not have it answers
// RESET (msgr2.md 9.6). Then the socket is closed, and nothing has changed on either side.

// ErrElsewhere is wrapped by the error of a session that Connect believed to lead to
// an address at which the peer is not.
var ErrElsewhere = fmt.Errorf("%w: it is not at the address that it claims", ErrWrongPeer)

// Question is the frame that checks a claim; ok is false if there is nothing to check,
// or not now. The answer comes as Checked.
func (s *Session) Question(ours wire.AddrVec) (f wire2.SessionReconnect, ok bool) {
	if !s.checkable() {
		return f, false
	}
	return wire2.SessionReconnect{
		Addrs: ours, ClientCookie: s.ClientCookie, ServerCookie: s.ServerCookie, GlobalSeq: s.ToldSeq - 1, ConnectSeq: s.ConnectSeq,
	}, true
}

// checkable says whether the session is found by an address that only its peer has named,
// and whether it is open, so that both sides have it.
func (s *Session) checkable() bool {
	p := &s.Peer
	if p.Dialled || p.Target.IsBlank() || s.Policy.Server || !s.Resumable() || s.ToldSeq == 0 || s.Frozen {
		return false
	}
	return s.State == Ready || s.State == Standby || s.State == Wait
}

// Checked is the answer of who is at the address.
type Checked struct {
	Asked  wire2.SessionReconnect // Question
	Answer Frame                  // nil: there was none
	Other  bool                   // the process at the address cannot be the peer
}

// apply judges the answer, unless the session has changed meanwhile.
func (ev Checked) apply(s *Session, r *Run) {
	if !s.checkable() || ev.Asked.ClientCookie != s.ClientCookie || ev.Asked.ServerCookie != s.ServerCookie {
		return
	}
	other := ev.Other
	switch f := ev.Answer.(type) {
	case wire2.SessionRetryGlobal:
		s.Peer.Dialled = f.GlobalSeq == s.ToldSeq
	case wire2.SessionReset:
		other = true
	}
	if other {
		r.Do(Disproved{Addr: s.Peer.Target})
		s.Close(r, s, Close{Reset: true, Err: fmt.Errorf("%w: %v", ErrElsewhere, s.Peer.Target)})
	}
}
