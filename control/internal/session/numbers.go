package session

import "fmt"

// The bounds of the numbers in a peer's frames. The peer, or an impostor, chooses them; no
// number may wrap, and none may keep the owner of a session out for ever:
//
//   - global_seq and connect_seq count attempts, so that Numbers.Max is out of reach,
//     and a frame with more is a protocol violation. A global_seq may begin
//     anywhere below it: daemons with a fixed address begin with the time.
//   - Our own number in a retry may be Numbers.Lead ahead of the true one.
//   - A number on record that is more than Numbers.Lead ahead of the peer's own is not sent
//     to the peer, and counts only while an older handshake can be under way
//     (Request.Settled).
//   - The last message that the peer has received from us is one that we have sent. A higher
//     number is not adopted: the attempt fails and changes nothing. A peer that sends one
//     maxStrange times in a row has another session than we: ours begins anew with the next
//     attempt, as after a partial reset.

// Numbers are the bounds of the counters of one protocol.
type Numbers struct {
	// Max is above any number that a process can reach, and far below the wrap.
	Max uint64
	// Lead is how far the peer's view of one of our numbers may be ahead of ours: it may
	// come from an earlier process with our nonce.
	Lead uint64
}

// Believable says whether a peer may have seen this number of ours.
func (n Numbers) Believable(seen, own uint64) bool { return seen < n.Max && seen <= own+n.Lead }

// Implausible says whether a number on record is too far ahead of the peer's own
// to be one that the peer had.
func (n Numbers) Implausible(recorded, own uint64) bool {
	return recorded > own && recorded-own > n.Lead
}

const maxStrange = 4

// CheckReceived checks the number of the last message that the peer claims to have received:
// we must have sent it. Anew: the peer has sent impossible numbers so often that it must have
// another session than we, and ours has to begin anew.
func (l *Lifecycle) CheckReceived(seq uint64) (anew bool, err error) {
	if seq <= l.IO.OutSeq {
		return false, nil
	}
	if l.strange++; l.strange == maxStrange {
		l.strange = 0
		anew = true
	}
	return anew, fmt.Errorf("%w: the peer has received message %d, we have sent %d", ErrProtocol, seq, l.IO.OutSeq)
}
