package session1

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The acceptor of msgr1 (Ceph's ProtocolV1.cc). READY and SEQ open the connection.
// After any other answer the peer may send another connect message on the same socket.

// Asked implements session.Protocol: it answers a connect message of an accepted socket.
func (s *Session) Asked(r *session.Run, ev session.Request) error {
	a, ok := ev.Frame.(Asked)
	if !ok {
		return s.unexpected(ev.Frame)
	}
	if err := s.check(r, &a, &ev); err != nil {
		return err
	}
	if tag := s.refusal(&a); tag != 0 {
		s.tell(r, &a, wire1.Reply{Tag: tag})
		return nil
	}
	e, view := s.view(r, &ev)
	v := Decide(view, uint64(a.GlobalSeq), uint64(a.ConnectSeq), s.Policy.ResetCheck)
	if s.Policy.Server && !s.Policy.Findable() {
		v = DoOpen // row 5: a session that is not registered is not looked up either
	}
	switch v {
	case DoOpen, DoOpenInstead:
		if ev.Refuse != nil {
			return ev.Refuse
		}
		s.establish(r, &a, &ev, v == DoOpenInstead)
	case DoReplace, DoReplaceReset:
		return s.Give(r, &e.Lifecycle, v == DoReplaceReset)
	case DoResetSession:
		r.Do(session.Count{What: session.ResetsSent})
		s.tell(r, &a, wire1.Reply{Tag: wire1.TagResetSession})
	case DoRetryGlobal:
		r.Do(session.Count{What: session.RetriesSent})
		s.tell(r, &a, wire1.Reply{Tag: wire1.TagRetryGlobal, GlobalSeq: uint32(e.PeerGlobalSeq)})
	case DoRetrySession:
		r.Do(session.Count{What: session.RetriesSent})
		s.tell(r, &a, wire1.Reply{Tag: wire1.TagRetrySession, ConnectSeq: uint32(e.ConnectSeq) + 1})
	case DoWait:
		reply := wire1.Reply{Tag: wire1.TagWait, Features: a.Features&s.Policy.Supported | s.Policy.Required | a.Required, Protocol: s.protocol()}
		s.TellWait(r, true, Answer{Reply: reply})
	case DoStale:
		return fmt.Errorf("%w: global_seq %d, connect_seq %d", session.ErrStale, a.GlobalSeq, a.ConnectSeq)
	default:
		return fmt.Errorf("%w: session of another entity", session.ErrWrongPeer)
	}
	return nil
}

// check refuses a connect message that no honest peer sends, and one that has to wait for
// the end of a hand-over.
func (s *Session) check(r *session.Run, a *Asked, ev *session.Request) error {
	switch {
	case a.HostType != s.Peer.Type:
		return fmt.Errorf("%w: host type %v, it was %v", session.ErrProtocol, a.HostType, s.Peer.Type)
	case ev.From.IsBlank():
		return fmt.Errorf("%w: connect without an address", session.ErrProtocol)
	case r.Env.Addrs.Contains(ev.From):
		return fmt.Errorf("%w: the peer says that it is %v, as we are", session.ErrWrongPeer, ev.From)
	case !ev.Ours:
		return fmt.Errorf("%w: the peer wants who we were, we are %v", session.ErrWrongPeer, r.Env.Addrs)
	case !s.Policy.Lossy && ev.Frozen:
		return session.ErrFrozen
	case !s.Policy.Lossy && !s.Policy.Server && ev.From.AddrPort.Port() == 0:
		return fmt.Errorf("%w: peer %v cannot be dialled back", session.ErrProtocol, ev.From)
	}
	return plausible(&a.Connect)
}

// plausible refuses numbers that no honest peer reaches by counting.
func plausible(c *wire1.Connect) error {
	if uint64(c.GlobalSeq) > numbers.Max || uint64(c.ConnectSeq) > numbers.Max {
		return fmt.Errorf("%w: connect with global_seq %d, connect_seq %d", session.ErrProtocol, c.GlobalSeq, c.ConnectSeq)
	}
	return nil
}

// view has the facts for the table about the existing connection, and the session if it is one
// of msgr1.
func (s *Session) view(r *session.Run, ev *session.Request) (*Session, View) {
	if ev.Existing == nil {
		return nil, View{}
	}
	l := ev.Existing.Life()
	if l.Peer.GivesWay(&s.Peer) {
		return nil, View{}
	}
	e, ok := ev.Existing.(*Session)
	connecting := l.State == session.Connecting || l.State == session.Wait
	return e, View{View: s.View(r, ev.Existing, ev), Foreign: !ok, Connecting: connecting}
}

// establish opens a new session on the socket.
func (s *Session) establish(r *session.Run, a *Asked, ev *session.Request, instead bool) {
	s.Establish(r, ev, instead)
	s.Rename(r, wire.AddrVec{ev.From}, false)
	s.connect = a.Connect
	s.Features = a.Features & s.Policy.Supported
	r.Do(session.Suspend{}, session.MoveHandler{Attempt: s.Attempt, Accepted: true, Replace: instead})
}

// Resume implements session.Protocol: the peer has to connect again.
func (s *Session) Resume(r *session.Run, by session.Replace) error {
	a, ok := by.Frame.(Asked)
	if !ok {
		return fmt.Errorf("%w: taken over by %v", session.ErrProtocol, by.Frame)
	}
	s.anew = a.ConnectSeq == 0 && s.ConnectSeq > 0
	s.counts = !by.Reset
	known := s.PeerGlobalSeq
	if by.Reset {
		s.forget(r, true)
		s.drawn, s.wasOpen = true, false
	}
	if numbers.Implausible(known, uint64(a.GlobalSeq)) {
		known = uint64(a.GlobalSeq) // the sender must not learn our record
	}
	s.tell(r, &a, wire1.Reply{Tag: wire1.TagRetryGlobal, GlobalSeq: uint32(known)})
	return nil
}

// askedAgain answers the connect message that follows on the socket which has taken the
// connection over.
func (s *Session) askedAgain(r *session.Run, a Asked) error {
	switch {
	case !s.MayGoOn():
		return session.ErrEndless
	case a.HostType != s.Peer.Type:
		return fmt.Errorf("%w: host type %v, it was %v", session.ErrProtocol, a.HostType, s.Peer.Type)
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
	s.Accept(r)
	return nil
}

// Accept implements session.Protocol: it tells the peer that the connection is open.
func (s *Session) Accept(r *session.Run) {
	c := &s.connect
	s.PeerGlobalSeq, s.ConnectSeq = uint64(c.GlobalSeq), uint64(c.ConnectSeq)+1
	s.Features = c.Features & s.Policy.Supported
	s.counts = true
	own := r.Env.Seq.Next()
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
	if !s.anew && c.Features.Has(wire1.FeatureReconnectSeq) {
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

// received takes the number of the last message that the connector has received, which
// completes the handshake.
func (s *Session) received(r *session.Run, q wire1.Seq) error {
	if err := s.checkReceived(r, q.Received); err != nil {
		return err
	}
	r.Do(session.RequeueUpTo{Seq: q.Received})
	s.open(r)
	return nil
}

// An acceptor refuses some connect messages before it looks for a session (Ceph's
// ProtocolV1.cc, rows 1 to 4). The peer may connect again on the same socket.

// Refuse is the tag with which a connect message is refused for its contents, 0 if it is not
// refused. It does not look at the authorizer. required are the features that the
// acceptor needs, protocol is wire1.Protocol of the two types.
func Refuse(c *wire1.Connect, required wire.Features, protocol uint32) wire1.Tag {
	switch {
	case c.Protocol != protocol: // row 1
		return wire1.TagBadProtoVer
	case c.Features.Missing(required) != 0: // row 2
		return wire1.TagFeatures
	}
	return 0
}

// refusal is Refuse with the authorizer.
func (s *Session) refusal(a *Asked) wire1.Tag {
	if tag := Refuse(&a.Connect, s.Policy.Required|a.Required, s.protocol()); tag != 0 {
		return tag
	}
	switch a.Authorizer {
	case AuthorizerGood:
		return 0
	case AuthorizerChallenge: // row 4
		return wire1.TagChallengeAuthorizer
	default: // row 3
		return wire1.TagBadAuthorizer
	}
}

// protocol is the version that both must have when the peer is the connector.
func (s *Session) protocol() uint32 { return wire1.Protocol(s.Peer.Type, s.own) }

// tell answers with a reply after which the peer may send another connect message.
func (s *Session) tell(r *session.Run, a *Asked, reply wire1.Reply) {
	required := s.Policy.Required | a.Required
	reply.Features = a.Features&s.Policy.Supported | required
	reply.Protocol = s.protocol()
	s.due = dueConnect
	r.Do(session.Send{Frame: Answer{Reply: reply}})
}

// The check of a claim, as accept.go of session2 has it for msgr2. The peer of an accepted
// connection has named its address, and authentication proves a name, never an address. A
// session of msgr1 has no cookie: another process at the address could take our connect
// message for one of its own session with us, and both sessions would go on as one.
//
// So the first connect message that goes on with such a session has a global_seq that is too
// low. A process that has a session with us answers RETRY_GLOBAL with the number that it has
// on record. The true peer has the number of our reply, which no other session has.

// told are our global_seqs in the replies to connect messages that may have opened the session.
// The peer has one of them on record: it records the number after it has sent its own sequence,
// which reaches us first, or never. So the last number that has opened the session here, and the
// earlier ones, stay until messages have come on that socket.
type told struct {
	numbers [8]uint32 // in their order; 0: none
	opened  uint32    // the one that has opened the session last; 0: none has
}

// add appends a reply. If there are too many the second one is left out: the first was
// confirmed, as a rule.
func (t *told) add(seq uint64) {
	for i := range t.numbers {
		if t.numbers[i] == 0 {
			t.numbers[i] = uint32(seq)
			return
		}
	}
	copy(t.numbers[1:], t.numbers[2:])
	t.numbers[len(t.numbers)-1] = uint32(seq)
}

// open notes that the last one has opened the session.
func (t *told) open() { t.opened = slices.Max(t.numbers[:]) }

// confirm drops the numbers before the one that has opened the session.
func (t *told) confirm() {
	for t.numbers[0] != 0 && t.numbers[0] < t.opened {
		copy(t.numbers[:], t.numbers[1:])
		t.numbers[len(t.numbers)-1] = 0
	}
}

// knows says whether the peer may have this number of ours on record.
func (t *told) knows(seq uint64) bool {
	return seq > 0 && slices.ContainsFunc(t.numbers[:], func(n uint32) bool { return uint64(n) == seq })
}

// tooLow is a number below any that another session of this process has had for long, and
// not so far below that it is implausible.
func (t *told) tooLow() uint64 {
	first := uint64(t.numbers[0])
	return first - min(first, numbers.Lead/2)
}

// doubts says whether only the peer has named the address at which the session is to go on. A
// session of another process without a record of its numbers is believed.
func (s *Session) doubts() bool {
	return !s.Peer.Dialled && !s.there && s.told != (told{})
}

// judge takes the answer to a connect message that checks a claim. After a refusal the session
// tries again: a peer that has not got our last reply knows an older session, and comes itself.
func (s *Session) judge(a Answer) error {
	switch a.Tag {
	case wire1.TagRetryGlobal:
		if s.there = s.told.knows(uint64(a.GlobalSeq)); s.there {
			return nil
		}
	case wire1.TagReady, wire1.TagSeq, wire1.TagRetrySession:
	default: // no answer that only a session gives
		return nil
	}
	return fmt.Errorf("%w: %v, which the peer has claimed, knows another session", session.ErrProtocol, s.Peer.Target)
}
