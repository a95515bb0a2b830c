package session

import "fmt"

// What is believed of the numbers that a peer tells. It, or who speaks in its name,
// chooses them; none may wrap, and none may keep the owner of a session out for
// ever.

// Numbers are the bounds of the counters of one protocol.
type Numbers struct {
	// Max is more than anybody can count to, and far below what would wrap.
	Max uint64
	// Lead is how far a peer's idea of one of our numbers may be ahead of our own: that
	// of a process before us that had our nonce.
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

// CheckReceived judges what the peer says that it has received from us: a number that
// we have sent. Anew: the peer has said so often what cannot be that it has another
// session than we, and ours has to begin anew.
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
