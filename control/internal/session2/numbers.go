package session2

import "github.com/ringmsgr/ringmsgr/control/internal/session"

// The bounds of the numbers in session frames. A peer, or an impostor, chooses them; none may
// wrap, and none may keep the owner of a session out for ever:
//
//   - global_seq and connect_seq count attempts, so that Numbers.Max is out of reach,
//     and a frame with more is a protocol violation. A global_seq may begin
//     anywhere below it: daemons with a fixed address begin with the time.
//   - Our own numbers in RETRY and RETRY_GLOBAL may be Numbers.Lead ahead of the true ones.
//   - A number on record that is more than Numbers.Lead ahead of the peer's own is not sent
//     to the peer, and counts only while an older handshake can be under way
//     (session.Request.Settled). The same holds for every global_seq that a CLIENT_IDENT
//     does not reach, as the peer does not get it.
//   - msg_seq is a number that we have sent. A higher one is not adopted: the attempt fails
//     and changes nothing. A peer that sends it again and again has another session than
//     we: ours begins anew with the next attempt, as after a partial reset.

// numbers are the bounds of msgr2: half of the range, even for a count that begins with the
// time in nanoseconds.
var numbers = session.Numbers{Max: 1 << 62, Lead: 1 << 32}

// checkReceived checks the number of the last message that the peer claims to have received.
func (s *Session) checkReceived(r *session.Run, msgSeq uint64) error {
	anew, err := s.CheckReceived(msgSeq)
	if anew {
		s.reset(r, false)
	}
	return err
}
