package session2

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The accepted socket of msgr2, until the decision about its connection (Ceph's ProtocolV2.cc).
// After RETRY and RETRY_GLOBAL it expects another SESSION_RECONNECT, after RESET a
// CLIENT_IDENT, as the sharded implementation does; after IDENT_MISSING_FEATURES it takes a
// better CLIENT_IDENT, as the classic one does.

// Asked implements session.Protocol: it answers CLIENT_IDENT and SESSION_RECONNECT.
func (s *Session) Asked(r *session.Run, ev session.Request) error {
	kind := KindOf(ev.Frame)
	if s.due != KindNone && kind != s.due {
		return fmt.Errorf("%w: %v where %v was due", session.ErrProtocol, frameName(ev.Frame), s.due)
	}
	switch f := ev.Frame.(type) {
	case wire2.ClientIdent:
		return s.clientIdent(r, f, &ev)
	case wire2.SessionReconnect:
		return s.sessionReconnect(r, f, &ev)
	}
	return fmt.Errorf("%w: %v before the session", session.ErrProtocol, frameName(ev.Frame))
}

// tell answers with a frame, after which the peer's next one is due.
func (s *Session) tell(r *session.Run, f session.Frame, due Kind) {
	s.due = due
	r.Do(session.Send{Frame: f})
}

// clientIdent answers CLIENT_IDENT.
func (s *Session) clientIdent(r *session.Run, ci wire2.ClientIdent, ev *session.Request) error {
	ours, front := r.Env.Addrs, ci.Addrs.Front()
	switch {
	case front.IsBlank():
		return fmt.Errorf("%w: CLIENT_IDENT without an address", session.ErrProtocol)
	case ours.Contains(front):
		return fmt.Errorf("%w: the peer says that it is %v, as we are", session.ErrWrongPeer, front)
	case !ev.Ours:
		return fmt.Errorf("%w: the peer wants %v, we are %v", session.ErrWrongPeer, ci.TargetAddr, ours)
	case !s.Policy.Lossy && ev.Frozen:
		return session.ErrFrozen
	case ev.Ended:
		return fmt.Errorf("%w: CLIENT_IDENT with global_seq %d of a session that has ended", session.ErrStale, ci.GlobalSeq)
	case ci.GlobalSeq > numbers.Max:
		return fmt.Errorf("%w: CLIENT_IDENT with global_seq %d", session.ErrProtocol, ci.GlobalSeq)
	case !s.Policy.Lossy && !s.Policy.Server && !front.IsOneHost():
		return fmt.Errorf("%w: peer %v cannot be dialled back", session.ErrProtocol, ci.Addrs)
	}
	if missing := ci.Supported.Missing(s.Policy.Required); missing != 0 {
		s.tell(r, wire2.IdentMissingFeatures{Features: missing}, KindClientIdent)
		return nil
	}
	e := s.existing(ev)
	if s.Policy.Server && !s.Policy.Findable() {
		e = nil // the classic rule: a session that is not registered is not looked up either
	}
	view := s.view(r, e, ev)
	if e != nil && isOther(&e.Peer, ci.GID) {
		view.OtherEntity = true
	}
	switch v := DecideIdent(view, ci.Cookie, ci.GlobalSeq, s.Policy.ResetCheck); v {
	case DoEstablish, DoReplaceLossy:
		if ev.Refuse != nil {
			return ev.Refuse
		}
		s.establish(r, ci, ev, v == DoReplaceLossy)
		return nil
	case DoReuse, DoReuseReset:
		return s.Give(r, &e.Lifecycle, v == DoReuseReset)
	case DoWait, DoWaitOnly:
		s.TellWait(r, v == DoWait, WaitFrame{})
		return nil
	case DoStale:
		return fmt.Errorf("%w: CLIENT_IDENT with global_seq %d", session.ErrStale, ci.GlobalSeq)
	default:
		return fmt.Errorf("%w: session of another entity", session.ErrWrongPeer)
	}
}

// sessionReconnect answers SESSION_RECONNECT.
func (s *Session) sessionReconnect(r *session.Run, sr wire2.SessionReconnect, ev *session.Request) error {
	front := sr.Addrs.Front()
	switch {
	case front.Type != wire.AddrMsgr2 && front.Type != wire.AddrAny, front.IsBlank(), s.claimed != nil && s.claimed.front != front:
		return fmt.Errorf("%w: SESSION_RECONNECT from %v", session.ErrProtocol, sr.Addrs)
	case ev.Frozen:
		return session.ErrFrozen // the successor knows the session
	case r.Env.Addrs.Contains(front):
		return fmt.Errorf("%w: the peer says that it is %v, as we are", session.ErrWrongPeer, front)
	}
	if sr.GlobalSeq > numbers.Max || sr.ConnectSeq > numbers.Max {
		return fmt.Errorf("%w: SESSION_RECONNECT with global_seq %d, connect_seq %d", session.ErrProtocol, sr.GlobalSeq, sr.ConnectSeq)
	}
	s.claimed = &claimed{front: front}
	e := s.existing(ev)
	switch DecideReconnect(s.view(r, e, ev), sr.ClientCookie, sr.GlobalSeq, sr.ConnectSeq, s.Policy.ResetCheck) {
	case DoReuse:
		return s.Give(r, &e.Lifecycle, false)
	case DoRetry:
		r.Do(session.Count{What: session.RetriesSent})
		s.tell(r, wire2.SessionRetry{ConnectSeq: e.ConnectSeq}, KindReconnect)
	case DoRetryGlobal:
		r.Do(session.Count{What: session.RetriesSent})
		s.tell(r, wire2.SessionRetryGlobal{GlobalSeq: e.PeerGlobalSeq}, KindReconnect)
	case DoResetFull:
		r.Do(session.Count{What: session.ResetsSent})
		s.tell(r, wire2.SessionReset{Full: true}, KindClientIdent)
	case DoResetPartial:
		r.Do(session.Count{What: session.ResetsSent}, session.Count{What: session.PartialResetsSent})
		s.tell(r, wire2.SessionReset{}, KindClientIdent)
	case DoWaitOnly:
		s.TellWait(r, false, WaitFrame{})
	case DoStale:
		return fmt.Errorf("%w: SESSION_RECONNECT with global_seq %d, connect_seq %d", session.ErrStale, sr.GlobalSeq, sr.ConnectSeq)
	default:
		return fmt.Errorf("%w: session of another entity", session.ErrWrongPeer)
	}
	return nil
}

// existing is the session that exists, nil if none counts.
func (s *Session) existing(ev *session.Request) *Session {
	e, ok := ev.Existing.(*Session)
	if !ok || e.Peer.GivesWay(&s.Peer) {
		return nil
	}
	return e
}

// view has the facts for the tables about e.
func (s *Session) view(r *session.Run, e *Session, ev *session.Request) View {
	if e == nil {
		return View{}
	}
	return View{View: s.View(r, e, ev), ClientCookie: e.ClientCookie, ServerCookie: e.ServerCookie}
}

// isOther says whether the number belongs to another entity than the known peer. An OSD is its number; that of
// others may change, as a monitor's rank, and the session goes on (the classic rule).
func isOther(known *session.Peer, number int64) bool {
	return known.Type == wire.OSD && known.NumberKnown && known.Number != number
}

// SenderOf identifies the sender of CLIENT_IDENT or SESSION_RECONNECT; zero for other frames.
func SenderOf(f session.Frame) session.Sender {
	switch f := f.(type) {
	case wire2.ClientIdent:
		return session.Sender{Addrs: f.Addrs, Target: f.TargetAddr, Cookie: f.Cookie, GlobalSeq: f.GlobalSeq}
	case wire2.SessionReconnect:
		return session.Sender{Addrs: f.Addrs, Cookie: f.ClientCookie, GlobalSeq: f.GlobalSeq}
	}
	return session.Sender{}
}

// establish opens a new session on the socket.
func (s *Session) establish(r *session.Run, ci wire2.ClientIdent, ev *session.Request, replaceLossy bool) {
	s.Establish(r, ev, replaceLossy)
	s.adopt(r, ci)
	r.Do(session.Suspend{}, session.MoveHandler{Attempt: s.Attempt, Accepted: true, Replace: replaceLossy})
}

// adopt takes over the fields of CLIENT_IDENT.
func (s *Session) adopt(r *session.Run, ci wire2.ClientIdent) {
	s.Rename(r, ci.Addrs, false)
	s.Peer.Number, s.Peer.NumberKnown = ci.GID, true
	s.claimed = &claimed{target: ci.TargetAddr}
	s.ClientCookie = ci.Cookie
	s.PeerGlobalSeq = ci.GlobalSeq
	s.Features = ci.Supported & s.Policy.Supported
}

// Resume implements session.Protocol (Ceph's ProtocolV2.cc).
func (s *Session) Resume(r *session.Run, by session.Replace) error {
	if by.Reset {
		s.reset(r, true)
	}
	switch f := by.Frame.(type) {
	case wire2.ClientIdent:
		s.adopt(r, f)
		s.Accept(r)
	case wire2.SessionReconnect:
		if err := s.checkReceived(r, f.MsgSeq); err != nil {
			return err
		}
		s.PeerGlobalSeq, s.ConnectSeq = f.GlobalSeq, f.ConnectSeq
		r.Do(session.RequeueUpTo{Seq: f.MsgSeq}, session.Send{Frame: wire2.SessionReconnectOK{MsgSeq: s.IO.InSeq}})
	}
	return nil
}

// Accept implements session.Protocol: it answers with SERVER_IDENT.
func (s *Session) Accept(r *session.Run) {
	s.IO = s.IO.Requeued()
	s.IO.InSeq = 0
	r.Do(session.ResetPeer{})
	si := wire2.ServerIdent{
		Addrs: s.told(r.Env.Addrs), GID: r.Env.Number, GlobalSeq: r.Env.Seq.Next(),
		Supported: s.Policy.Supported, Required: s.Policy.Required,
	}
	s.claimed, s.ToldSeq = nil, si.GlobalSeq
	if s.Policy.Lossy {
		si.Flags = wire.IdentLossy
	} else {
		s.ServerCookie = r.Env.OwnerCookie()
		si.Cookie = s.ServerCookie
		r.Do(session.HintDropped{}) // the cookie is ours, not the peer's
	}
	r.Do(session.Send{Frame: si})
}

// told are our addresses for this peer: among them must be the one by which it has reached us.
// Other peers do not get that one.
func (s *Session) told(ours wire.AddrVec) wire.AddrVec {
	if ours.Contains(s.claimed.target) {
		return ours
	}
	return append(slices.Clone(ours), s.claimed.target)
}

// Finish implements session.Protocol.
func (s *Session) Finish(r *session.Run) { s.Ready(r) }

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
	if p.Dialled || s.Policy.Server || !s.Resumable() || s.ToldSeq == 0 || s.Frozen {
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
