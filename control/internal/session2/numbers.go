package session2

import "github.com/ringmsgr/ringmsgr/control/internal/session"

// What is believed of the numbers in session frames. A peer, or who speaks in its
// name, chooses them; none may wrap, and none may keep the owner of a session out
// for ever:
//
//   - global_seq and connect_seq count attempts, so that Numbers.Max is out of reach,
//     and a frame with more is a protocol violation. A global_seq may begin
//     anywhere below it: daemons with a fixed address begin with the time.
//   - What is told of our own numbers, in RETRY and RETRY_GLOBAL, may be Numbers.Lead
//     ahead of them.
//   - A number on record that is more than Numbers.Lead ahead of the peer's own is
//     not told to the peer, and counts only as long as a handshake can be under way
//     that is older (session.Request.Settled). The same holds for every global_seq that a
//     CLIENT_IDENT does not reach, as the peer is not told of it.
//   - msg_seq is a number that we have sent. If the peer names a higher one it is
//     not adopted, and the attempt has failed with nothing changed. A peer that does
//     so again and again has another session than we: ours begins
//     anew with the next attempt, as after a partial reset.

// numbers are the bounds of msgr2: half of what would wrap, even with the time in
// nanoseconds to begin with.
var numbers = session.Numbers{Max: 1 << 62, Lead: 1 << 32}

// checkReceived judges what the peer says that it has received from us.
func (s *Session) checkReceived(r *session.Run, msgSeq uint64) error {
	anew, err := s.CheckReceived(msgSeq)
	if anew {
		s.reset(r, false)
	}
	return err
}
