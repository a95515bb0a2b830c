package session2

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The connector of msgr2 (Ceph's ProtocolV2.cc): CLIENT_IDENT or SESSION_RECONNECT, and the
// answers to them.

// Start implements session.Protocol.
func (s *Session) Start(r *session.Run) error {
	if s.ServerCookie != 0 {
		return s.reconnect(r)
	}
	if err := s.MayBegin(r); err != nil {
		return err
	}
	s.ident(r)
	return nil
}

// ident opens a session.
func (s *Session) ident(r *session.Run) {
	p := &s.Policy
	ci := wire2.ClientIdent{
		Addrs: r.Env.Addrs, TargetAddr: s.Peer.Target, GID: r.Env.Number, GlobalSeq: s.GlobalSeq,
		Supported: p.Supported, Required: p.Required,
	}
	if p.Lossy {
		// The classic habit, which the sharded one tolerates. If the acceptor
		// makes the session a lossless one, 0 is its cookie.
		s.ClientCookie = 0
		ci.Flags = wire.IdentLossy
	}
	ci.Cookie = s.ClientCookie
	s.asked = KindClientIdent
	r.Do(session.Count{What: session.Idents}, session.Send{Frame: ci})
}

// reconnect resumes the session.
func (s *Session) reconnect(r *session.Run) error {
	if err := s.MayRetry(); err != nil {
		return err
	}
	s.asked = KindReconnect
	r.Do(session.Count{What: session.Reconnects}, session.Send{Frame: wire2.SessionReconnect{
		Addrs: r.Env.Addrs, ClientCookie: s.ClientCookie, ServerCookie: s.ServerCookie,
		GlobalSeq: s.GlobalSeq, ConnectSeq: s.ConnectSeq, MsgSeq: s.IO.InSeq,
	}})
	return nil
}

// Answered implements session.Protocol.
func (s *Session) Answered(r *session.Run, f session.Frame) error {
	if _, wait := f.(WaitFrame); wait {
		return session.ErrWait
	}
	if s.asked == KindClientIdent {
		switch f := f.(type) {
		case wire2.ServerIdent:
			return s.serverIdent(r, f)
		case wire2.IdentMissingFeatures:
			return fmt.Errorf("%w: the peer requires %v", session.ErrMissingFeatures, f.Features)
		}
	}
	if s.asked == KindReconnect {
		switch f := f.(type) {
		case wire2.SessionReconnectOK:
			if err := s.checkReceived(r, f.MsgSeq); err != nil {
				return err
			}
			r.Do(session.RequeueUpTo{Seq: f.MsgSeq}, session.MoveHandler{Attempt: s.Attempt})
			return nil
		case wire2.SessionRetry:
			if !numbers.Believable(f.ConnectSeq, s.ConnectSeq) {
				return fmt.Errorf("%w: SESSION_RETRY with %d, we are at %d", session.ErrProtocol, f.ConnectSeq, s.ConnectSeq)
			}
			s.ConnectSeq = f.ConnectSeq + 1
			r.Do(session.Count{What: session.Retries})
			return s.reconnect(r)
		case wire2.SessionRetryGlobal:
			if err := s.Exceed(r, numbers, f.GlobalSeq); err != nil {
				return err
			}
			return s.reconnect(r)
		case wire2.SessionReset:
			if err := s.MayBegin(r); err != nil {
				return err
			}
			s.reset(r, f.Full)
			s.ident(r) // a new session on the same TCP connection
			return nil
		}
	}
	return fmt.Errorf("%w: %v in answer to %v", session.ErrProtocol, frameName(f), s.asked)
}

// serverIdent takes over the fields of SERVER_IDENT.
func (s *Session) serverIdent(r *session.Run, si wire2.ServerIdent) error {
	if !si.Addrs.Contains(s.Peer.Target) {
		// Not terminal: the address may be on its way to another process.
		return fmt.Errorf("%w: dialled %v, it is %v", session.ErrOtherAddress, s.Peer.Target, si.Addrs)
	}
	if isOther(&s.Peer, si.GID) {
		return fmt.Errorf("%w: number %d, expected %d", session.ErrWrongPeer, si.GID, s.Peer.Number)
	}
	if missing := si.Supported.Missing(s.Policy.Required); missing != 0 {
		return fmt.Errorf("%w: the peer lacks %v", session.ErrMissingFeatures, missing)
	}
	if si.GlobalSeq > numbers.Max {
		return fmt.Errorf("%w: SERVER_IDENT with global_seq %d", session.ErrProtocol, si.GlobalSeq)
	}
	s.IO = s.IO.Requeued()
	r.Do(session.Requeue{})
	s.Peer.Number, s.Peer.NumberKnown = si.GID, true
	if !s.Peer.Dialled {
		// The acceptor did not know the session: it may be another process than the peer that came.
		s.Peer.Entity, s.Peer.Proven = wire.EntityName{}, false
	}
	s.ToldSeq = 0
	s.Rename(r, si.Addrs, !s.Peer.Anonymous)
	s.Features = si.Supported & s.Policy.Supported
	s.PeerGlobalSeq = si.GlobalSeq
	s.ServerCookie = si.Cookie
	r.Do(session.HintReceived{Cookie: si.Cookie})
	// The acceptor decides whether the session is lossy.
	if s.Policy.Lossy = si.Flags&wire.IdentLossy != 0; s.Policy.Lossy {
		s.ConnectSeq, s.ServerCookie = 0, 0
		r.Do(session.HintDropped{})
	} else if !s.Peer.Anonymous {
		r.Do(session.Only{})
	}
	r.Do(session.MoveHandler{Attempt: s.Attempt})
	return nil
}

// Arrived implements session.Protocol.
func (s *Session) Arrived(r *session.Run) {
	s.Peer.Dialled = true // the peer is at this address, however we knew it
	s.Ready(r)
}

// reset forgets the session (Ceph's ProtocolV2.cc): all of it, or the state that depends on the
// peer's memory.
func (s *Session) reset(r *session.Run, full bool) {
	s.ServerCookie = 0
	if full {
		s.ClientCookie = r.Env.Cookie()
	}
	s.Forget(r, full, false)
}
