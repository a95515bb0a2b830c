package session

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The connector of msgr2 (msgr2.md 9.4): CLIENT_IDENT or SESSION_RECONNECT, and
// what comes of the answers.

// maxRetries bounds the SESSION_RECONNECTs of one attempt: each RETRY raises
// one of our numbers, and an honest peer sends only a few.
const maxRetries = 16

// apply begins the session handshake.
func (ev Authenticated) apply(s *Session, r *Run) {
	if !s.Owns(r, ev.Attempt, Connecting) {
		return
	}
	s.Observe(ev.IO)
	if s.ServerCookie != 0 {
		s.reconnect(r)
	} else if err := s.MayBegin(r); err != nil {
		s.Fault(r, s, err, false)
	} else {
		s.ident(r)
	}
}

// ident opens a session.
func (s *Session) ident(r *Run) {
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
	r.Do(Count{Idents}, Send{Frame: ci})
}

// reconnect resumes the session.
func (s *Session) reconnect(r *Run) {
	if !s.Round(maxRetries + 1) {
		s.Fault(r, s, fmt.Errorf("%w: session retried without end", ErrProtocol), false)
		return
	}
	s.asked = KindReconnect
	r.Do(Count{Reconnects}, Send{Frame: wire2.SessionReconnect{
		Addrs: r.Env.Addrs, ClientCookie: s.ClientCookie, ServerCookie: s.ServerCookie,
		GlobalSeq: s.GlobalSeq, ConnectSeq: s.ConnectSeq, MsgSeq: s.IO.InSeq,
	}})
}

// apply is the peer's answer. Any error in it is a fault of the attempt.
func (ev Answer) apply(s *Session, r *Run) {
	if !s.Owns(r, ev.Attempt, Connecting) {
		return
	}
	if err := s.answered(r, ev.Frame); err != nil {
		s.Fault(r, s, err, false)
	}
}

func (s *Session) answered(r *Run, f Frame) error {
	if _, wait := f.(WaitFrame); wait {
		return ErrWait
	}
	if s.asked == KindClientIdent {
		switch f := f.(type) {
		case wire2.ServerIdent:
			return s.serverIdent(r, f)
		case wire2.IdentMissingFeatures:
			return fmt.Errorf("%w: the peer requires %v", ErrMissingFeatures, f.Features)
		}
	}
	if s.asked == KindReconnect {
		switch f := f.(type) {
		case wire2.SessionReconnectOK:
			if err := s.checkReceived(r, f.MsgSeq); err != nil {
				return err
			}
			r.Do(RequeueUpTo{Seq: f.MsgSeq}, MoveHandler{Attempt: s.Attempt})
			return nil
		case wire2.SessionRetry:
			if !numbers.Believable(f.ConnectSeq, s.ConnectSeq) {
				return fmt.Errorf("%w: SESSION_RETRY with %d, we are at %d", ErrProtocol, f.ConnectSeq, s.ConnectSeq)
			}
			s.ConnectSeq = f.ConnectSeq + 1
			r.Do(Count{Retries})
			s.reconnect(r)
			return nil
		case wire2.SessionRetryGlobal:
			// global_seq is one number for all our peers.
			if own := uint64(*r.Env.Seq); !numbers.Believable(f.GlobalSeq, own) {
				return fmt.Errorf("%w: SESSION_RETRY_GLOBAL with %d, we are at %d", ErrProtocol, f.GlobalSeq, own)
			}
			s.GlobalSeq = r.Env.Seq.Next(f.GlobalSeq)
			r.Do(Count{Retries})
			s.reconnect(r)
			return nil
		case wire2.SessionReset:
			if err := s.MayBegin(r); err != nil {
				return err
			}
			s.reset(r, f.Full)
			s.ident(r) // a new session on the same TCP connection
			return nil
		}
	}
	return fmt.Errorf("%w: %v in answer to %v", ErrProtocol, frameName(f), s.asked)
}

// serverIdent adopts what the acceptor says.
func (s *Session) serverIdent(r *Run, si wire2.ServerIdent) error {
	if !si.Addrs.Contains(s.Peer.Target) {
		// Not terminal: the address may be on its way to another process.
		return fmt.Errorf("%w: dialled %v, it is %v", ErrOtherAddress, s.Peer.Target, si.Addrs)
	}
	if s.Peer.NumberKnown && s.Peer.Number != si.GID {
		return fmt.Errorf("%w: number %d, expected %d", ErrWrongPeer, si.GID, s.Peer.Number)
	}
	if missing := si.Supported.Missing(s.Policy.Required); missing != 0 {
		return fmt.Errorf("%w: the peer lacks %v", ErrMissingFeatures, missing)
	}
	if si.GlobalSeq > numbers.Max {
		return fmt.Errorf("%w: SERVER_IDENT with global_seq %d", ErrProtocol, si.GlobalSeq)
	}
	s.IO = s.IO.Requeued()
	r.Do(Requeue{})
	s.Peer.Number, s.Peer.NumberKnown = si.GID, true
	if !s.Peer.Dialled {
		// Who is there did not know the session: it may be another one than came.
		s.Peer.Entity, s.Peer.Proven = wire.EntityName{}, false
	}
	s.ToldSeq = 0
	s.Rename(r, si.Addrs, !s.Peer.Anonymous)
	s.Features = si.Supported & s.Policy.Supported
	s.PeerGlobalSeq = si.GlobalSeq
	s.ServerCookie = si.Cookie
	r.Do(HintReceived{Cookie: si.Cookie})
	// The acceptor decides whether the session is lossy.
	if s.Policy.Lossy = si.Flags&wire.IdentLossy != 0; s.Policy.Lossy {
		s.ConnectSeq, s.ServerCookie = 0, 0
		r.Do(HintDropped{})
	} else if !s.Peer.Anonymous {
		r.Do(Only{})
	}
	r.Do(MoveHandler{Attempt: s.Attempt})
	return nil
}

// reset forgets the session (msgr2.md 9.4): all of it, or what depends on the
// peer's memory.
func (s *Session) reset(r *Run, full bool) {
	s.ServerCookie = 0
	if full {
		s.ClientCookie = r.Env.Cookie()
	}
	s.Forget(r, full)
}
