package session1

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
)

// The check of a claim, as claim.go of session2 has it for msgr2. The peer of an accepted
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
func (t *told) open() { t.opened = uint32(t.last()) }

// confirm drops the numbers before the one that has opened the session.
func (t *told) confirm() {
	for t.numbers[0] != 0 && t.numbers[0] < t.opened {
		copy(t.numbers[:], t.numbers[1:])
		t.numbers[len(t.numbers)-1] = 0
	}
}

func (t *told) last() (seq uint64) {
	for _, n := range t.numbers {
		seq = max(seq, uint64(n))
	}
	return seq
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
	return s.ConnectSeq > 0 && !s.Peer.Dialled && !s.there && s.told != (told{})
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
