package session1

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The connector of msgr1 (Ceph's ProtocolV1.cc): its connect messages, and the answers to them.
// And the frames of an attempt of either role.

// Start implements session.Protocol.
func (s *Session) Start(r *session.Run) error {
	if s.ConnectSeq == 0 {
		if err := s.MayBegin(r); err != nil {
			return err
		}
	}
	return s.sendConnect(r)
}

// sendConnect opens or resumes the session.
func (s *Session) sendConnect(r *session.Run) error {
	if err := s.MayRetry(); err != nil {
		return err
	}
	c := wire1.Connect{
		Features: s.Policy.Supported, HostType: s.own, GlobalSeq: uint32(s.GlobalSeq), ConnectSeq: uint32(s.ConnectSeq),
		Protocol: wire1.Protocol(s.own, s.Peer.Type),
	}
	if s.Policy.Lossy {
		c.Flags = wire1.FlagLossy
	}
	if s.doubts() {
		c.GlobalSeq = uint32(s.told.tooLow())
	}
	what := session.Idents
	if s.ConnectSeq > 0 {
		what = session.Reconnects
	}
	s.due = dueAnswer
	r.Do(session.Count{What: what}, session.Send{Frame: c})
	return nil
}

// Answered implements session.Protocol.
func (s *Session) Answered(r *session.Run, f session.Frame) error {
	switch f := f.(type) {
	case Answer:
		if s.due == dueAnswer {
			return s.reply(r, f)
		}
	case Asked:
		if s.due == dueConnect {
			return s.askedAgain(r, f)
		}
	case wire1.Seq:
		if s.due == dueSeq {
			return s.received(r, f)
		}
	}
	return s.unexpected(f)
}

func (s *Session) unexpected(f session.Frame) error {
	return fmt.Errorf("%w: %v in state %v", session.ErrProtocol, f, s.State)
}

// reply takes an answer to our connect message.
func (s *Session) reply(r *session.Run, a Answer) error {
	s.due = dueNothing
	if s.doubts() {
		if err := s.judge(a); err != nil {
			return err
		}
	}
	switch a.Tag {
	case wire1.TagFeatures:
		return fmt.Errorf("%w: the peer requires %v", session.ErrMissingFeatures, s.Policy.Supported.Missing(a.Features))
	case wire1.TagBadProtoVer:
		return fmt.Errorf("%w: the peer has protocol %d, we have %d", session.ErrProtocol, a.Protocol, wire1.Protocol(s.own, s.Peer.Type))
	case wire1.TagBadAuthorizer:
		return ErrBadAuthorizer
	case wire1.TagWait:
		return session.ErrWait
	case wire1.TagResetSession:
		if err := s.MayBegin(r); err != nil {
			return err
		}
		if !s.wasOpen && s.ConnectSeq > 0 { // only attempts that broke off have raised it: no message is lost
			s.ConnectSeq, s.told = 0, told{}
			break
		}
		s.forget(r, true)
		s.drawn, s.wasOpen = true, false
	case wire1.TagRetryGlobal:
		if err := s.Exceed(r, numbers, uint64(a.GlobalSeq)); err != nil {
			return err
		}
	case wire1.TagRetrySession:
		told := uint64(a.ConnectSeq)
		if told <= s.ConnectSeq || !numbers.Believable(told, s.ConnectSeq) {
			return fmt.Errorf("%w: RETRY_SESSION with %d, we are at %d", session.ErrProtocol, told, s.ConnectSeq)
		}
		s.ConnectSeq = told
		r.Do(session.Count{What: session.Retries})
	case wire1.TagReady, wire1.TagSeq:
		return s.opened(r, a)
	default:
		return s.unexpected(a)
	}
	return s.sendConnect(r) // on the same TCP connection
}

// opened takes READY or SEQ. Its numbers count once the connection is open.
func (s *Session) opened(r *session.Run, a Answer) error {
	switch missing := a.Features.Missing(s.Policy.Required); {
	case missing != 0:
		return fmt.Errorf("%w: the peer lacks %v", session.ErrMissingFeatures, missing)
	case uint64(a.ConnectSeq) != s.ConnectSeq+1:
		return fmt.Errorf("%w: %v, we are at connect_seq %d", session.ErrProtocol, a, s.ConnectSeq)
	case uint64(a.GlobalSeq) > numbers.Max:
		return fmt.Errorf("%w: %v", session.ErrProtocol, a)
	}
	if a.Tag == wire1.TagSeq {
		if err := s.checkReceived(r, a.Received); err != nil {
			return err
		}
		r.Do(session.RequeueUpTo{Seq: a.Received})
	} else {
		s.IO = s.IO.Requeued()
		r.Do(session.Requeue{})
	}
	s.answer = a
	s.Features = a.Features & s.Policy.Supported
	s.Rename(r, wire.AddrVec{s.Peer.Target}, !s.Peer.Anonymous)
	r.Do(session.MoveHandler{Attempt: s.Attempt})
	return nil
}

// Arrived implements session.Protocol.
func (s *Session) Arrived(r *session.Run) {
	if s.answer.Tag == wire1.TagSeq {
		r.Do(session.Send{Frame: wire1.Seq{Received: s.IO.InSeq}})
		return
	}
	s.adopt(r)
}

// Finish implements session.Protocol.
func (s *Session) Finish(r *session.Run) {
	if s.State == session.Connecting {
		s.adopt(r)
		return
	}
	s.open(r)
}

// adopt ends a connector's handshake.
func (s *Session) adopt(r *session.Run) {
	s.PeerGlobalSeq = uint64(s.answer.GlobalSeq)
	s.ConnectSeq++
	s.Policy.Lossy = s.answer.Lossy() // the acceptor decides
	s.Peer.Dialled = true             // we reached the peer at that address, even if only the peer had named it before
	s.open(r)
}

// checkReceived checks the number of the last message that the peer claims to have received.
func (s *Session) checkReceived(r *session.Run, seq uint64) error {
	if (s.IO.OutSeq == 0 || s.drawn) && !s.IO.Sent && seq <= maxReceived {
		return nil // from the connection before this one, which we have forgotten: ours numbers on
	}
	anew, err := s.CheckReceived(seq)
	if anew {
		s.forget(r, false)
		s.counts, s.wasOpen = false, false
	}
	return err
}
