package session1

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire1"
)

// The check of a claim, as session/claim.go has it for msgr2. The peer of an accepted
// connection has said at which address it is, and authentication proves a name, never an
// address. A session of msgr1 has no cookie: who is at the address would take our connect
// message for one of the session that it has with us itself, and both would go on as one.
//
// So the first connect message that goes on with such a session has a global_seq that is
// too low. Who has a session with us answers RETRY_GLOBAL with our number that it has on
// record. The peer has that of our reply, which no other session has.

// told are our global_seqs in the replies that may have opened the session: the last one
// that did, and later ones, of which nobody knows whether they have arrived.
type told [4]uint64

// add appends a reply. If there are too many the first that nobody has confirmed is left
// out.
func (t *told) add(seq uint64) {
	for i := range t {
		if t[i] == 0 {
			t[i] = seq
			return
		}
	}
	copy(t[1:], t[2:])
	t[len(t)-1] = seq
}

// confirm leaves the last one.
func (t *told) confirm() { *t = told{t.last()} }

func (t *told) last() (seq uint64) {
	for _, n := range t {
		if n > 0 {
			seq = n
		}
	}
	return seq
}

// knows says whether the peer may have this number of ours on record.
func (t *told) knows(seq uint64) bool {
	for _, n := range t {
		if n > 0 && n == seq {
			return true
		}
	}
	return false
}

// tooLow is a number below any that another session of this process has had for long, and
// not so far below that it is implausible.
func (t *told) tooLow() uint64 { return t[0] - min(t[0], numbers.Lead/2) }

// doubts says whether only the peer has named the address at which the session is to go
// on. What came from another process, which did not say what it has told, is believed.
func (s *Session) doubts() bool {
	return s.ConnectSeq > 0 && !s.Peer.Dialled && !s.there && s.told != (told{})
}

// judge takes the answer to a connect message that checks a claim. What it refuses is tried
// again: a peer that has not got our last reply knows an older session, and comes itself.
func (s *Session) judge(a Answer) error {
	switch a.Tag {
	case wire1.TagRetryGlobal:
		if s.there = s.told.knows(uint64(a.GlobalSeq)); s.there {
			return nil
		}
	case wire1.TagReady, wire1.TagSeq, wire1.TagRetrySession:
	default: // nothing that only a session says
		return nil
	}
	return fmt.Errorf("%w: %v, which the peer has claimed, knows another session", session.ErrProtocol, s.Peer.Target)
}
