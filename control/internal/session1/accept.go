package session1

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The acceptor of msgr1 (msgr1.md, sections 8 and 9). READY and SEQ open the connection.
// After any other answer the peer may send another connect message on the same socket.

// maxRounds bounds the connect messages of an accepted socket.
const maxRounds = 32

// requested answers a connect message of an accepted socket.
func (s *Session) requested(r *session.Run, ev Request) {
	if s.State != session.Accepting {
		r.Do(session.Superseded{})
		return
	}
	more := s.Round(maxRounds)
	if err := s.ask(r, ev); err != nil {
		s.Hangup(r, err)
	} else if s.State == session.Accepting && !more {
		s.Hangup(r, fmt.Errorf("%w: session handshake without end", session.ErrProtocol))
	}
}

func (s *Session) ask(r *session.Run, ev Request) error {
	if err := s.check(r, &ev); err != nil {
		return err
	}
	if tag := s.refusal(&ev.Asked); tag != 0 {
		s.tell(r, &ev.Asked, wire1.Reply{Tag: tag})
		return nil
	}
	e := ev.Existing
	v := Decide(s.view(r, &ev), uint64(ev.GlobalSeq), uint64(ev.ConnectSeq), s.Policy.ResetCheck)
	if s.Policy.Server && s.Policy.Lossy && !s.Policy.Register {
		v = DoOpen // row 5: what is not registered is not looked up either
	}
	switch v {
	case DoOpen, DoOpenInstead:
		if ev.Refuse != nil {
			return ev.Refuse
		}
		s.establish(r, &ev, v == DoOpenInstead)
		return nil
	case DoReplace, DoReplaceReset:
		return s.Give(r, &e.Lifecycle, v == DoReplaceReset)
	case DoResetSession:
		r.Do(session.Count{What: session.ResetsSent})
		s.tell(r, &ev.Asked, wire1.Reply{Tag: wire1.TagResetSession})
	case DoRetryGlobal:
		r.Do(session.Count{What: session.RetriesSent})
		s.tell(r, &ev.Asked, wire1.Reply{Tag: wire1.TagRetryGlobal, GlobalSeq: uint32(e.PeerGlobalSeq)})
	case DoRetrySession:
		r.Do(session.Count{What: session.RetriesSent})
		s.tell(r, &ev.Asked, wire1.Reply{Tag: wire1.TagRetrySession, ConnectSeq: uint32(e.ConnectSeq) + 1})
	case DoWait:
		reply := wire1.Reply{Tag: wire1.TagWait, Features: ev.Features&s.Policy.Supported | s.Policy.Required | ev.Required, Protocol: s.protocol()}
		s.TellWait(r, true, Answer{Reply: reply})
	case DoStale:
		return fmt.Errorf("%w: global_seq %d, connect_seq %d", session.ErrStale, ev.GlobalSeq, ev.ConnectSeq)
	default:
		return fmt.Errorf("%w: session of another entity", session.ErrWrongPeer)
	}
	return nil
}

// check refuses a connect message that no honest peer sends, and one that has to wait for
// the end of a hand-over.
func (s *Session) check(r *session.Run, ev *Request) error {
	switch {
	case ev.HostType != uint32(s.Peer.Type):
		return fmt.Errorf("%w: host type %d, it was %v", session.ErrProtocol, ev.HostType, s.Peer.Type)
	case ev.From.IsBlank():
		return fmt.Errorf("%w: connect without an address", session.ErrProtocol)
	case r.Env.Addrs.Contains(ev.From):
		return fmt.Errorf("%w: the peer says that it is %v, as we are", session.ErrWrongPeer, ev.From)
	case ev.Gone:
		return fmt.Errorf("%w: the peer wants who we were, we are %v", session.ErrWrongPeer, r.Env.Addrs)
	case !s.Policy.Lossy && ev.Frozen:
		return session.ErrFrozen
	case !s.Policy.Lossy && !s.Policy.Server && ev.From.AddrPort.Port() == 0:
		return fmt.Errorf("%w: peer %v cannot be dialled back", session.ErrProtocol, ev.From)
	}
	return plausible(&ev.Connect)
}

// plausible refuses numbers that no honest peer reaches by counting.
func plausible(c *wire1.Connect) error {
	if uint64(c.GlobalSeq) > numbers.Max || uint64(c.ConnectSeq) > numbers.Max {
		return fmt.Errorf("%w: connect with global_seq %d, connect_seq %d", session.ErrProtocol, c.GlobalSeq, c.ConnectSeq)
	}
	return nil
}

// view is what the table looks at of the existing connection.
func (s *Session) view(r *session.Run, ev *Request) View {
	if f := ev.Foreign; f != nil {
		if f.Peer.GivesWay(&s.Peer) {
			return View{}
		}
		return View{Exists: true, Foreign: true, OtherEntity: !f.Is(&s.Peer)}
	}
	e := ev.Existing
	if e == nil || e.Peer.GivesWay(&s.Peer) {
		return View{}
	}
	theirs := s.Address(e.Peer.Addrs)
	if theirs.IsBlank() {
		theirs = ev.From
	}
	return View{
		Exists: true,
		// Stricter than the real daemons, which compare addresses alone: a session is handed
		// to whom it was authenticated for.
		OtherEntity:   !e.Is(&s.Peer),
		Replacing:     e.State == session.Replacing,
		Lossy:         e.Policy.Lossy,
		Connecting:    e.State == session.Connecting || e.State == session.Wait,
		PeerGlobalSeq: e.PeerGlobalSeq,
		ConnectSeq:    e.ConnectSeq,
		PeerWins:      session.PeerWins(e.Policy, s.Address(r.Env.Addrs), theirs),
		Settled:       ev.Settled,
	}
}

// establish opens a new session on the socket.
func (s *Session) establish(r *session.Run, ev *Request, instead bool) {
	if !s.Establish(r, ev.From, ev.Near, instead) {
		return
	}
	s.Rename(r, wire.AddrVec{ev.From}, false)
	s.connect = ev.Connect
	s.Features = ev.Features & s.Policy.Supported
	r.Do(session.Suspend{}, session.MoveHandler{Attempt: s.Attempt, Accepted: true, Replace: instead})
}

// taken has an accepted socket take the connection over (section 9.2).
func (s *Session) taken(r *session.Run, ev session.Replace) {
	if s.Interrupt(r) {
		s.replace = ev
		s.due = dueNothing
	}
}

// resume brings the session up to date with what the accepted socket said, and has it
// connect again.
func (s *Session) resume(r *session.Run) {
	ev := s.replace
	s.replace = session.Replace{}
	a, ok := ev.Frame.(Asked)
	if !ok {
		s.Fault(r, s, fmt.Errorf("%w: taken over by %v", session.ErrProtocol, session.FrameText(ev.Frame)), false)
		return
	}
	s.anew = a.ConnectSeq == 0 && s.ConnectSeq > 0
	s.counts = !ev.Reset
	known := s.PeerGlobalSeq
	if ev.Reset {
		s.Forget(r, true)
		s.drawn, s.wasOpen = true, false
	}
	s.Peer.Proven = s.Peer.Proven || ev.Proven
	if s.Peer.Entity == (wire.EntityName{}) {
		s.Peer.Entity = ev.Entity
	}
	if numbers.Implausible(known, uint64(a.GlobalSeq)) {
		known = uint64(a.GlobalSeq) // who asks must not learn it
	}
	s.tell(r, &a, wire1.Reply{Tag: wire1.TagRetryGlobal, GlobalSeq: uint32(known)})
}

// askedAgain answers the connect message that follows on the socket which has taken the
// connection over.
func (s *Session) askedAgain(r *session.Run, a Asked) error {
	switch {
	case !s.Round(maxRounds):
		return fmt.Errorf("%w: session handshake without end", session.ErrProtocol)
	case a.HostType != uint32(s.Peer.Type):
		return fmt.Errorf("%w: host type %d, it was %v", session.ErrProtocol, a.HostType, s.Peer.Type)
	}
	if err := plausible(&a.Connect); err != nil {
		return err
	}
	if tag := s.refusal(&a); tag != 0 {
		s.tell(r, &a, wire1.Reply{Tag: tag})
		return nil
	}
	s.anew = s.anew || a.ConnectSeq == 0 && s.ConnectSeq > 0
	s.connect = a.Connect
	s.accept(r)
	return nil
}

// accept tells the peer that the connection is open.
func (s *Session) accept(r *session.Run) {
	c := &s.connect
	s.PeerGlobalSeq, s.ConnectSeq = uint64(c.GlobalSeq), uint64(c.ConnectSeq)+1
	s.Features = c.Features & s.Policy.Supported
	s.counts = true
	own := r.Env.Seq.Next(0)
	if s.IO.InSeq > s.inAtOpen {
		s.told.confirm()
	}
	s.told.add(own)
	reply := wire1.Reply{
		Tag: wire1.TagSeq, Features: s.Policy.Supported, GlobalSeq: uint32(own), ConnectSeq: c.ConnectSeq + 1,
		Protocol: s.protocol(),
	}
	if s.Policy.Lossy {
		reply.Flags = wire1.FlagLossy
	}
	if !s.anew && c.Features.Has(wire.FeatureReconnectSeq) {
		s.due = dueSeq
		r.Do(session.Send{Frame: Answer{Reply: reply, Received: s.IO.InSeq}})
		return
	}
	reply.Tag = wire1.TagReady
	s.due = dueNothing
	s.IO = s.IO.Requeued()
	s.IO.InSeq = 0
	if s.anew {
		r.Do(session.ResetPeer{})
	} else {
		r.Do(session.Requeue{}, session.ResetIO{}) // a peer without the exchange goes on with its numbers
	}
	r.Do(session.Send{Frame: Answer{Reply: reply}})
}

// received takes what the connector has received, which completes the handshake.
func (s *Session) received(r *session.Run, q wire1.Seq) error {
	if err := s.checkReceived(r, q.Received); err != nil {
		return err
	}
	r.Do(session.RequeueUpTo{Seq: q.Received})
	s.open(r)
	return nil
}
