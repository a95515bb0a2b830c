package session

import (
	"fmt"
	"strconv"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Who is who. A session goes by an address because we dialled it, because its
// peer came and said that it is there, or because the peer that we dialled said
// that this is the first of its addresses. Only the first is knowledge: what
// answers there is what was asked for. The second is a claim: authentication
// proves a name, never an address. Two daemons have one session, whoever dialled, so
// a claim cannot be left aside either: who dialled a peer that has come to us already
// would make a second session, and the two would take the peer from each other for
// ever. Therefore:
//
//   - Who connects to an address gets the session that was dialled to exactly that
//     address; else that of a peer that claims it: of one that proved its name
//     before one that only says it, of one that came from that IP before one that
//     came from another, of a daemon before a client, of the latest before others. If
//     that leaves two who have proven a name nobody is believed, and the address is
//     dialled. The third way leads nobody anywhere.
//   - A claim that Connect has believed is checked (claim.go): the address itself is
//     asked whether it knows the session. If it does the session counts as dialled. If
//     it does not the session ends with a reset event, so that its user connects
//     again, and claims to that address are not believed any more: it is dialled. If
//     nobody answers the claim stays what it was, as behind a NAT.
//   - A session that we dialled ends all others with the same peer at that address:
//     the peer has only that one.
//   - A peer that comes finds its own session: under the client cookie and under
//     its name; by the third way only if it names the address, too, that we dialled.
//   - A peer of another name is refused where the address was dialled, and where
//     somebody is there who has a socket or a proven name. Who proves a name
//     is refused by no claim: it gets a session of its own, beside the others.
//   - So a claim that nobody proved keeps nobody out once its socket is gone: we
//     dial that address if we want to go on with the session, and the peer of
//     that name finds it, and nobody else does. A session that the peer there knows
//     goes on. A new one begins there only if the claim came from that IP, and nobody
//     is known there with a better right: else we would begin it, in our own name,
//     with whom the claim chose, and end the session that we have with that one. With
//     the new one nothing is left of the name.

// The ways to go by an address, by what they count.
const (
	rankNone = iota // the peer that we dialled elsewhere says so
	rankClient
	rankClaimed
	rankClaimedNear // from the IP of the address
	rankProven
	rankProvenNear
	rankDialled
)

// rank says how the session with the peer goes by a.
func (p *Peer) rank(a wire.Addr) int {
	switch {
	case p.Target != a:
		return rankNone
	case p.Dialled:
		return rankDialled
	case p.Type == wire.Client:
		return rankClient
	}
	r := rankClaimed
	if p.Proven {
		r = rankProven
	}
	if p.Near {
		r++
	}
	return r
}

// FoundLike says that Found and FoundAs find both alike.
func (p *Peer) FoundLike(o *Peer) bool {
	return p.Target == o.Target && p.Dialled == o.Dialled && p.Type == o.Type && p.Proven == o.Proven && p.Near == o.Near && p.Entity == o.Entity
}

// Found says which of the peers whose sessions go by address a is there, in the
// order in which the sessions came; -1: a has to be dialled. Disproved: a claim to a
// was wrong, so that none is believed.
func Found(a wire.Addr, known []*Peer, disproved bool) int {
	found, best, contested := -1, rankNone, false
	if disproved {
		best = rankDialled - 1
	}
	for i, p := range known {
		if r := p.rank(a); r > best {
			found, best, contested = i, r, false
		} else if r == best && found >= 0 {
			contested = r == rankProven || r == rankProvenNear
			found = i
		}
	}
	if contested {
		return -1
	}
	return found
}

// FoundAs is Found for the peer of a certain name: who has proven another one is
// not it, and who has proven this one is, whatever was disproved.
func FoundAs(a wire.Addr, name wire.EntityName, known []*Peer, disproved bool) int {
	found, best := -1, rankNone
	if disproved {
		best = rankProven - 1
	}
	for i, p := range known {
		if r := p.rank(a); r > best && sameEntity(p.Entity, name) {
			found, best = i, r
		}
	}
	return found
}

// Doubles says whether the session is another one with the peer that s has dialled,
// which knows only s.
func (s *Session) Doubles(by *Session) bool {
	e, p := &s.Peer, &by.Peer
	return !e.Dialled && e.Target == p.Target && e.Type == p.Type && !s.Policy.Lossy &&
		e.NumberKnown && p.NumberKnown && e.Number == p.Number && p.Number >= 0
}

// Meant says which of the sessions that go by the first address of a frame the
// peer p of an accepted socket means with it, or which one is in its way; -1:
// none. same says whether the frame names session i, by its client cookie.
func Meant(p Peer, addrs wire.AddrVec, known []*Lifecycle, same func(i int) bool) int {
	meant, best := -1, 0
	front := addrs.Front()
	for i, s := range known {
		r := s.Peer.rank(front)
		switch {
		case r == rankNone && !addrs.Contains(s.Peer.Target):
			continue
		case !s.Is(&p):
			if s.yields(&p) {
				continue
			}
			r = 0 // in the way of who has no session here
		case same(i):
			r += 1 + rankDialled + 1
		default:
			r++
		}
		if meant < 0 || r > best {
			meant, best = i, r
		}
	}
	return meant
}

// MayBegin returns why no new session may begin with who answers at the peer's
// address, nil if one may.
func (l *Lifecycle) MayBegin(r *Run) error {
	p := &l.Peer
	switch {
	case p.Dialled:
		return nil
	case p.From.IsValid() && p.From.Unmap() != p.Target.AddrPort.Addr().Unmap():
		return fmt.Errorf("%w: no session is known at %v, which the peer has claimed from %v", ErrWrongPeer, p.Target, p.From)
	case r.Env.Contested != nil && r.Env.Contested():
		return fmt.Errorf("%w: no session is known at %v, which is somebody else's", ErrWrongPeer, p.Target)
	}
	return nil
}

// Contested says whether one of the sessions that go by the target of s has a
// better right to it: it was dialled, or its peer has proven another name.
func Contested(s *Lifecycle, known []*Lifecycle) bool {
	for _, o := range known {
		switch r := o.Peer.rank(s.Peer.Target); {
		case o == s:
		case r == rankDialled, (r == rankProven || r == rankProvenNear) && !sameEntity(o.Peer.Entity, s.Peer.Entity):
			return true
		}
	}
	return false
}

// Is says whether p can be the peer of the connection.
func (l *Lifecycle) Is(p *Peer) bool {
	e := &l.Peer
	if e.Type != p.Type || !sameEntity(e.Entity, p.Entity) {
		return false
	}
	if p.Proven && p.Type == wire.OSD && e.Dialled && e.NumberKnown {
		// An OSD is its number.
		number, err := strconv.ParseInt(p.Entity.ID, 10, 64)
		return err != nil || number == e.Number
	}
	return true
}

// yields says whether the session is not in the way of another peer.
func (l *Lifecycle) yields(p *Peer) bool {
	e := &l.Peer
	switch {
	case e.Dialled:
		return false
	case e.GivesWay(p), p.Proven:
		return true
	default:
		return !e.Proven && (l.State == Standby || l.State == Wait)
	}
}
