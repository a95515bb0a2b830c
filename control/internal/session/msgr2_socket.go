package session

import (
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A connection of msgr2 with an accepted socket: a new session (Establishing), or
// one that the socket takes over (Replacing, msgr2.md 9.7). And the end of every
// handshake, a connector's too: the handler comes to the socket, then it is open.

// establish opens a new session on the socket.
func (s *Session) establish(r *Run, ci wire2.ClientIdent, near, replaceLossy bool) {
	if !s.Establish(r, s.claimed.front, near, replaceLossy) {
		return
	}
	s.adopt(r, ci, s.Peer.Entity)
	r.Do(Suspend{}, MoveHandler{Attempt: s.Attempt, Accepted: true, Replace: replaceLossy})
}

// adopt takes over what CLIENT_IDENT says.
func (s *Session) adopt(r *Run, ci wire2.ClientIdent, by wire.EntityName) {
	s.Rename(r, ci.Addrs, false)
	if !s.Peer.NumberKnown {
		s.Peer.Number, s.Peer.NumberKnown = ci.GID, true
	}
	s.claimed = &claimed{target: ci.TargetAddr}
	s.ClientCookie = ci.Cookie
	s.PeerGlobalSeq = ci.GlobalSeq
	s.Features = ci.Supported & s.Policy.Supported
	if s.Peer.Entity == (wire.EntityName{}) {
		s.Peer.Entity = by
	}
}

// apply has an accepted socket take over.
func (ev Replace) apply(s *Session, r *Run) {
	if s.Interrupt(r) {
		s.replace = &ev
	}
}

// apply makes a session of another process ours.
func (ev Restore) apply(s *Session, r *Run) {
	if !s.Restore(r, ev.IO) {
		return
	}
	s.ClientCookie, s.ServerCookie = ev.ClientCookie, ev.ServerCookie
	s.PeerGlobalSeq, s.ConnectSeq, s.Features = ev.PeerGlobalSeq, ev.ConnectSeq, ev.Features
	s.ToldSeq = ev.ToldSeq
}

// apply ends a connector's handshake, and has an acceptor answer.
func (ev HandlerMoved) apply(s *Session, r *Run) {
	if !s.Owns(r, ev.Attempt, Connecting, Establishing, Replacing) {
		return
	}
	switch s.State {
	case Connecting:
		s.Peer.Dialled = true // whoever said it: that is where the peer is
		s.Ready(r)
	case Establishing:
		s.sendServerIdent(r)
	case Replacing:
		s.resume(r)
	}
}

// resume brings the session up to date with what the accepted socket said.
func (s *Session) resume(r *Run) {
	ev := *s.replace
	s.replace = nil
	if ev.Reset {
		s.reset(r, true)
	}
	s.Peer.Proven = s.Peer.Proven || ev.Proven
	switch f := ev.Frame.(type) {
	case wire2.ClientIdent:
		s.adopt(r, f, ev.Entity)
		s.sendServerIdent(r)
	case wire2.SessionReconnect:
		if err := s.checkReceived(r, f.MsgSeq); err != nil {
			s.Fault(r, s, err, false)
			return
		}
		s.PeerGlobalSeq, s.ConnectSeq = f.GlobalSeq, f.ConnectSeq
		r.Do(RequeueUpTo{Seq: f.MsgSeq}, Send{Frame: wire2.SessionReconnectOK{MsgSeq: s.IO.InSeq}})
	}
}

// sendServerIdent makes the new session known to the peer.
func (s *Session) sendServerIdent(r *Run) {
	s.IO = s.IO.Requeued()
	s.IO.InSeq = 0
	r.Do(ResetPeer{})
	si := wire2.ServerIdent{
		Addrs: s.told(r.Env.Addrs), GID: r.Env.Number, GlobalSeq: r.Env.Seq.Next(0),
		Supported: s.Policy.Supported, Required: s.Policy.Required,
	}
	s.claimed, s.ToldSeq = nil, si.GlobalSeq
	if s.Policy.Lossy {
		si.Flags = wire.IdentLossy
		s.ServerCookie = 0
	} else {
		s.ServerCookie = r.Env.OwnerCookie()
		si.Cookie = s.ServerCookie
		r.Do(HintDropped{}) // the cookie is ours, not the peer's
	}
	r.Do(Send{Frame: si})
}

// told is what the peer is told of our addresses: it has to find the one by which
// it has reached us among them. Other peers are not told that.
func (s *Session) told(ours wire.AddrVec) wire.AddrVec {
	if ours.Contains(s.claimed.target) {
		return ours
	}
	return append(slices.Clone(ours), s.claimed.target)
}

// apply ends an acceptor's handshake.
func (ev Sent) apply(s *Session, r *Run) {
	if s.Owns(r, ev.Attempt, Establishing, Replacing) {
		s.Ready(r)
	}
}
