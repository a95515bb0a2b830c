package session1

import (
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Session is the protocol of one msgr1 connection (msgr1.md, sections 7 to 9), or of an
// accepted socket that is not a connection yet. It is a value: Step makes the next one
// of it. Its owner guards it.
type Session struct {
	session.Lifecycle

	own      wire.EntityType // ours
	counts   bool            // the next attempt of ours raises connect_seq
	anew     bool            // the peer has forgotten the session: it is told READY, not SEQ
	due      due             // what the attempt waits for
	answer   Answer          // connector: the one that opens the connection
	connect  wire1.Connect   // acceptor: the one that opens, or interrupts, the connection
	replace  session.Replace // state Replacing: what the accepted socket said
	drawn    bool            // a full reset has drawn our numbers, and the session was not open since
	wasOpen  bool            // the session was open since it began, or was forgotten
	told     told            // what the peer may know of our global_seq
	inAtOpen uint64          // IO.InSeq when the session opened last
	there    bool            // the peer is at the address that it has claimed
}

// due is the frame, or the event, that the attempt waits for.
type due uint8

const (
	dueNothing due = iota
	dueAnswer      // connector: the answer to its message
	dueConnect     // acceptor: another connect message
	dueSeq         // acceptor: what the connector has received
)

// New makes a session in state None. own is our type; that of the peer must be known.
func New(own wire.EntityType, p session.Policy, peer session.Peer, b session.Backoff) Session {
	return Session{Lifecycle: session.NewLifecycle(p, peer, b), own: own}
}

// Begin implements session.Protocol: connect_seq counts the attempts that follow an
// open connection, but not those that follow others or end a standby.
func (s *Session) Begin(_ *session.Run, t session.Trigger) {
	if s.counts && t != session.OnQueued {
		s.ConnectSeq++
	}
	s.counts, s.anew = false, false
	s.due = dueNothing
}

// Leave implements session.Protocol. There is nothing to remember: a connect message that
// comes after the end of its session opens a new one, without an exchange of sequences.
func (*Session) Leave(*session.Run) {}

// Address implements session.Protocol.
func (*Session) Address(v wire.AddrVec) wire.Addr { return v.V1() }

// Step is the machine: what comes of an event in a state. The actions are to be
// carried out in their order. s, and what it points to, does not change; only the numbers
// that env gives out do. Env.Seq counts the attempts of msgr1 alone, as they have
// 32 bits; Env.Cookie and Env.OwnerCookie are not called.
func Step(s Session, ev session.Event, env session.Env) (Session, []session.Action) {
	actions := s.Advance(ev, env)
	return s, actions
}

// Advance is Step in place, for the owner of the session: without a copy.
func (s *Session) Advance(ev session.Event, env session.Env) []session.Action {
	r := session.NewRun(env)
	switch ev := ev.(type) {
	case session.Lost:
		s.lost(r, ev)
	case session.LifeEvent:
		ev.Live(&s.Lifecycle, s, r)
	case session.Authenticated:
		s.connected(r, ev)
	case session.Answer:
		s.answered(r, ev)
	case session.HandlerMoved:
		s.moved(r, ev)
	case session.Sent:
		s.sent(r, ev)
	case session.Replace:
		s.taken(r, ev)
	case Request:
		s.requested(r, ev)
	case Restore:
		s.restore(r, ev)
	default:
		r.Foreign(ev)
	}
	return r.Actions()
}

// lost is the fault of the data phase. A peer that says CLOSE ends the session.
func (s *Session) lost(r *session.Run, ev session.Lost) {
	ev.Terminal = ev.Terminal || isClosed(ev.Err)
	ev.Live(&s.Lifecycle, s, r)
}

// restore makes a session of another process ours.
func (s *Session) restore(r *session.Run, ev Restore) {
	if !s.Lifecycle.Restore(r, ev.IO) {
		return
	}
	s.PeerGlobalSeq, s.ConnectSeq, s.Features = ev.PeerGlobalSeq, ev.ConnectSeq, ev.Features
	s.told, s.inAtOpen = told{opened: ev.Opened}, s.IO.InSeq
	for _, seq := range ev.Told {
		s.told.add(uint64(seq))
	}
	s.wasOpen = ev.ConnectSeq > 0
}

// Told returns our global_seqs in the replies of which the peer has one on record, in their
// order, and the one that has opened the session last. None and 0 if the peer has sent
// the replies.
func (s *Session) Told() (numbers []uint32, opened uint32) {
	t := s.told
	if s.IO.InSeq > s.inAtOpen {
		t.confirm()
	}
	for _, n := range t.numbers {
		if n != 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers, t.opened
}

// open completes a handshake.
func (s *Session) open(r *session.Run) {
	s.told.open()
	s.inAtOpen = s.IO.InSeq
	s.counts, s.anew, s.drawn, s.wasOpen, s.due = true, false, false, true, dueNothing
	s.Ready(r)
}
