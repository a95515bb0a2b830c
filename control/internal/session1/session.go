package session1

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Session is the protocol of one msgr1 connection (Ceph's ProtocolV1.cc), or of an
// accepted socket that is not a connection yet. Its owner guards it.
type Session struct {
	session.Lifecycle

	own      wire.EntityType // ours
	counts   bool            // the next attempt of ours raises connect_seq
	anew     bool            // the peer has forgotten the session: it gets READY, not SEQ
	due      due             // the frame that the attempt waits for
	answer   Answer          // connector: the one that opens the connection
	connect  wire1.Connect   // acceptor: the one that opens, or interrupts, the connection
	drawn    bool            // a full reset has drawn our numbers, and the session was not open since
	wasOpen  bool            // the session was open since it began, or was forgotten
	told     told            // our global_seqs that the peer may know
	inAtOpen uint64          // IO.InSeq when the session opened last
	there    bool            // the peer is at the address that it has claimed
}

// due is the frame, or the event, that the attempt waits for.
type due uint8

const (
	dueNothing due = iota
	dueAnswer      // connector: the answer to its message
	dueConnect     // acceptor: another connect message
	dueSeq         // acceptor: the connector's SEQ
)

// New makes a session in state None. own is our type; that of the peer must be known.
func New(own wire.EntityType, p session.Policy, peer session.Peer, b session.Backoff) Session {
	return Session{Lifecycle: session.NewLifecycle(p, peer, b), own: own}
}

// Version implements session.Protocol.
func (*Session) Version() int { return 1 }

// Begin implements session.Protocol: connect_seq counts the attempts that follow an open
// connection, but not attempts that follow others or end a standby.
func (s *Session) Begin(_ *session.Run, t session.Trigger) {
	if s.counts && t != session.OnQueued {
		s.ConnectSeq++
	}
	s.counts, s.anew = false, false
	s.due = dueNothing
}

// Leave implements session.Protocol. It keeps no memory: a connect message after the end of its
// session opens a new one, without an exchange of sequences.
func (*Session) Leave(*session.Run) {}

// Address implements session.Protocol.
func (*Session) Address(v wire.AddrVec) wire.Addr { return v.V1() }

// Names implements session.Protocol: a session goes by its address alone.
func (*Session) Names(uint64) bool { return true }

// Question implements session.Protocol: a claim is checked by the next attempt (accept.go).
func (*Session) Question(wire.AddrVec) session.Frame { return nil }

// Judge implements session.Protocol.
func (*Session) Judge(*session.Run, session.Checked) {}

// Recall implements session.Protocol.
func (s *Session) Recall(r session.Record) {
	s.told, s.inAtOpen = told{opened: r.Opened}, s.IO.InSeq
	for _, seq := range r.Told {
		s.told.add(uint64(seq))
	}
	s.wasOpen = s.ConnectSeq > 0
}

// Record implements session.Protocol.
func (s *Session) Record() session.Record {
	t := s.told
	if s.IO.InSeq > s.inAtOpen {
		t.confirm()
	}
	r := session.Record{Opened: t.opened, ToldSeq: uint64(t.opened)} // ToldSeq is for a successor that knows only one
	for _, n := range t.numbers {
		if n != 0 {
			r.Told = append(r.Told, n)
		}
	}
	return r
}

// forget forgets the session. A peer that signs messages takes any number as the first.
func (s *Session) forget(r *session.Run, full bool) {
	s.told = told{} // the next session has numbers of its own
	s.Forget(r, full, s.Features.Has(wire1.FeatureMsgAuth))
}

// open completes a handshake.
func (s *Session) open(r *session.Run) {
	s.told.open()
	s.inAtOpen = s.IO.InSeq
	s.counts, s.anew, s.drawn, s.wasOpen, s.due = true, false, false, true, dueNothing
	s.Ready(r)
}

// The frames of a session are [Answer], [Asked], wire1.Connect and wire1.Seq. The next event after
// a frame is the peer's next one; after an [Answer] with READY, or a wire1.Seq, it is session.Sent.

// Answer is the frame with which an acceptor answers: a reply, and with wire1.TagSeq the number
// of the last message that the acceptor has received. The machine does not look at its
// authorizer bytes.
type Answer struct {
	wire1.Reply
	Received uint64
}

// String is the answer with its fields.
func (a Answer) String() string {
	if a.Tag == wire1.TagSeq {
		return fmt.Sprintf("%v received=%d", a.Reply, a.Received)
	}
	return a.Reply.String()
}

// Authorizer is the verdict about the authorizer of a connect message.
type Authorizer uint8

// The verdicts.
const (
	AuthorizerGood      Authorizer = iota // it is valid, or none is needed
	AuthorizerBad                         // it is missing or wrong
	AuthorizerChallenge                   // it has to be extended first
)

// Asked is the frame with which a connector asks: a connect message, with the verdict about its
// authorizer.
type Asked struct {
	wire1.Connect
	Authorizer Authorizer
	// Required are the features that the authorizer's method needs beside those of the
	// policy: CEPHX_V2 and MSG_AUTH, if cephx is configured so.
	Required wire.Features
}

// ErrBadAuthorizer: the peer does not accept our authorizer, even a fresh one.
var ErrBadAuthorizer = errors.New("control: authorizer refused")
