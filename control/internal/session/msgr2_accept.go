package session

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The accepted socket of msgr2, until it is decided whose it is (msgr2.md 9.5
// and 9.6). After RETRY and RETRY_GLOBAL it expects another SESSION_RECONNECT,
// after RESET a CLIENT_IDENT, as the sharded implementation does; after
// IDENT_MISSING_FEATURES it takes a better CLIENT_IDENT, as the classic one does.

// maxRounds bounds the session frames of an accepted socket.
const maxRounds = 32

// apply answers CLIENT_IDENT and SESSION_RECONNECT.
func (ev Request) apply(s *Session, r *Run) {
	if s.State != Accepting {
		r.Do(Superseded{})
		return
	}
	more := s.Round(maxRounds)
	if err := s.askedBy(r, ev); err != nil {
		s.Hangup(r, err)
	} else if s.State == Accepting && !more {
		s.Hangup(r, fmt.Errorf("%w: session handshake without end", ErrProtocol))
	}
}

func (s *Session) askedBy(r *Run, ev Request) error {
	kind := KindOf(ev.Frame)
	if s.due != KindNone && kind != s.due {
		return fmt.Errorf("%w: %v where %v was due", ErrProtocol, frameName(ev.Frame), s.due)
	}
	switch f := ev.Frame.(type) {
	case wire2.ClientIdent:
		return s.clientIdent(r, f, ev)
	case wire2.SessionReconnect:
		return s.sessionReconnect(r, f, ev)
	}
	return fmt.Errorf("%w: %v before the session", ErrProtocol, frameName(ev.Frame))
}

// tell answers with a frame, after which the peer's next one is due.
func (s *Session) tell(r *Run, f Frame, due Kind) {
	s.due = due
	r.Do(Send{Frame: f})
}

// clientIdent answers CLIENT_IDENT.
func (s *Session) clientIdent(r *Run, ci wire2.ClientIdent, ev Request) error {
	ours, front := r.Env.Addrs, ci.Addrs.Front()
	switch {
	case len(ci.Addrs) == 0 || front.IsBlank():
		return fmt.Errorf("%w: CLIENT_IDENT without an address", ErrProtocol)
	case ours.Contains(front):
		return fmt.Errorf("%w: the peer says that it is %v, as we are", ErrWrongPeer, front)
	case !ev.Ours:
		return fmt.Errorf("%w: the peer wants %v, we are %v", ErrWrongPeer, ci.TargetAddr, ours)
	case !s.Policy.Lossy && ev.Frozen:
		return ErrFrozen
	case ev.Ended:
		return fmt.Errorf("%w: CLIENT_IDENT with global_seq %d of a session that has ended", ErrStale, ci.GlobalSeq)
	case ci.GlobalSeq > numbers.Max:
		return fmt.Errorf("%w: CLIENT_IDENT with global_seq %d", ErrProtocol, ci.GlobalSeq)
	case !s.Policy.Lossy && !s.Policy.Server && !front.IsOneHost():
		return fmt.Errorf("%w: peer %v cannot be dialled back", ErrProtocol, ci.Addrs)
	}
	if missing := ci.Supported.Missing(s.Policy.Required); missing != 0 {
		s.tell(r, wire2.IdentMissingFeatures{Features: missing}, KindClientIdent)
		return nil
	}
	s.claimed = &claimed{front: front}
	e := s.findable(ev.Existing)
	if s.Policy.Server && !s.Policy.findable() {
		e = nil // the classic rule: what is not registered is not looked up either
	}
	view := s.view(e, ours, ev.Settled)
	if e != nil && e.Peer.Type == wire.OSD && e.Peer.NumberKnown && e.Peer.Number != ci.GID {
		view.OtherEntity = true // an OSD is its number; that of others may change (a monitor's rank)
	}
	switch v := DecideIdent(view, ci.Cookie, ci.GlobalSeq, s.Policy.ResetCheck); v {
	case DoEstablish, DoReplaceLossy:
		if ev.Refuse != nil {
			return ev.Refuse
		}
		s.establish(r, ci, ev.Near, v == DoReplaceLossy)
		return nil
	case DoReuse, DoReuseReset:
		return s.Give(r, &e.Lifecycle, v == DoReuseReset)
	case DoWait, DoWaitOnly:
		s.TellWait(r, v == DoWait, WaitFrame{})
		return nil
	default:
		return fmt.Errorf("%w: CLIENT_IDENT with global_seq %d", ErrStale, ci.GlobalSeq)
	}
}

// sessionReconnect answers SESSION_RECONNECT.
func (s *Session) sessionReconnect(r *Run, sr wire2.SessionReconnect, ev Request) error {
	front := sr.Addrs.Front()
	switch {
	case front.Type != wire.AddrMsgr2 && front.Type != wire.AddrAny, front.IsBlank(), s.claimed != nil && s.claimed.front != front:
		return fmt.Errorf("%w: SESSION_RECONNECT from %v", ErrProtocol, sr.Addrs)
	case ev.Frozen:
		return ErrFrozen // the successor knows the session
	case r.Env.Addrs.Contains(front):
		return fmt.Errorf("%w: the peer says that it is %v, as we are", ErrWrongPeer, front)
	}
	if sr.GlobalSeq > numbers.Max || sr.ConnectSeq > numbers.Max {
		return fmt.Errorf("%w: SESSION_RECONNECT with global_seq %d, connect_seq %d", ErrProtocol, sr.GlobalSeq, sr.ConnectSeq)
	}
	s.claimed = &claimed{front: front}
	e := s.findable(ev.Existing)
	switch DecideReconnect(s.view(e, r.Env.Addrs, ev.Settled), sr.ClientCookie, sr.GlobalSeq, sr.ConnectSeq, s.Policy.ResetCheck) {
	case DoReuse:
		return s.Give(r, &e.Lifecycle, false)
	case DoRetry:
		r.Do(Count{RetriesSent})
		s.tell(r, wire2.SessionRetry{ConnectSeq: e.ConnectSeq}, KindReconnect)
	case DoRetryGlobal:
		r.Do(Count{RetriesSent})
		s.tell(r, wire2.SessionRetryGlobal{GlobalSeq: e.PeerGlobalSeq}, KindReconnect)
	case DoResetFull:
		r.Do(Count{ResetsSent})
		s.tell(r, wire2.SessionReset{Full: true}, KindClientIdent)
	case DoResetPartial:
		r.Do(Count{ResetsSent}, Count{PartialResetsSent})
		s.tell(r, wire2.SessionReset{}, KindClientIdent)
	case DoWait, DoWaitOnly:
		s.TellWait(r, false, WaitFrame{})
	case DoStale:
		return fmt.Errorf("%w: SESSION_RECONNECT with global_seq %d, connect_seq %d", ErrStale, sr.GlobalSeq, sr.ConnectSeq)
	default:
		return fmt.Errorf("%w: session of another entity", ErrWrongPeer)
	}
	return nil
}

// findable is the existing connection, unless it does not count.
func (s *Session) findable(e *Session) *Session {
	if e != nil && e.Peer.GivesWay(&s.Peer) {
		return nil
	}
	return e
}

// view is what the tables look at of e.
func (s *Session) view(e *Session, ours wire.AddrVec, settled bool) View {
	if e == nil {
		return View{}
	}
	theirs := e.Peer.Addrs.V2()
	if theirs.IsBlank() {
		theirs = s.claimed.front
	}
	return View{
		Exists: true,
		// Stricter than the real daemons, which compare what is claimed: a
		// session is handed to whom it was authenticated for. A session that we
		// dialled has no proven entity until its peer has dialled us.
		OtherEntity:   !e.Is(&s.Peer),
		Replacing:     e.State == Replacing,
		Lossy:         e.Policy.Lossy,
		PeerGlobalSeq: e.PeerGlobalSeq,
		ConnectSeq:    e.ConnectSeq,
		ClientCookie:  e.ClientCookie,
		ServerCookie:  e.ServerCookie,
		PeerWins:      PeerWins(e.Policy, ours.V2(), theirs),
		Settled:       settled,
	}
}

// PeerOf is what the sender of CLIENT_IDENT or SESSION_RECONNECT is known by: its
// addresses, of which the first counts, and the client cookie. Both are zero for
// other frames.
func PeerOf(f Frame) (addrs wire.AddrVec, cookie uint64) {
	switch f := f.(type) {
	case wire2.ClientIdent:
		return f.Addrs, f.Cookie
	case wire2.SessionReconnect:
		return f.Addrs, f.ClientCookie
	}
	return nil, 0
}
