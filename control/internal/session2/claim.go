package session2

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The check of a claim. A peer came and said that it is at an address. We dial that address and
// send a SESSION_RECONNECT for the session, with a global_seq that is too low, so that it is
// refused in any case. A process that has the session answers RETRY_GLOBAL with the number that
// it knows from our SERVER_IDENT; one that does not have it answers RESET (Ceph's
// ProtocolV2.cc). Then the socket is closed, and nothing has changed on either side.

// Question implements session.Protocol.
func (s *Session) Question(ours wire.AddrVec) session.Frame {
	if !s.checkable() {
		return nil
	}
	return wire2.SessionReconnect{
		Addrs: ours, ClientCookie: s.ClientCookie, ServerCookie: s.ServerCookie, GlobalSeq: s.ToldSeq - 1, ConnectSeq: s.ConnectSeq,
	}
}

// checkable says whether the session is found by an address that only its peer has named,
// and whether it is open, so that both sides have it.
func (s *Session) checkable() bool {
	p := &s.Peer
	if p.Dialled || p.Target.IsBlank() || s.Policy.Server || !s.Resumable() || s.ToldSeq == 0 || s.Frozen {
		return false
	}
	return s.State == session.Ready || s.State == session.Standby || s.State == session.Wait
}

// Judge implements session.Protocol. An answer does not count if the session has changed
// meanwhile.
func (s *Session) Judge(r *session.Run, ev session.Checked) {
	asked, ok := ev.Asked.(wire2.SessionReconnect)
	if !ok || !s.checkable() || asked.ClientCookie != s.ClientCookie || asked.ServerCookie != s.ServerCookie {
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
		r.Do(session.Disproved{Addr: s.Peer.Target})
		s.Close(r, s, session.Close{Reset: true, Err: fmt.Errorf("%w: %v", session.ErrElsewhere, s.Peer.Target)})
	}
}
