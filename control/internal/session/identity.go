package session

import (
	"fmt"
	"strconv"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A session is known by an address for one of three reasons: we dialled the address
// (dialled), the peer came and named it as its own (claimed), or the peer that we dialled
// named it as the first of its addresses (said). Only a dialled address is certain. A
// claim is not: authentication proves a name, never an address. A claim cannot be ignored
// either: two daemons have one session, whichever of them dialled. A second session, which
// we dialled, and the first one would take the peer from each other for ever. Therefore:
//
//   - Connect to an address returns the session that was dialled to exactly that address;
//     else the session of a peer that claims it. A peer with a proven name has precedence
//     over one without, a peer that came from that IP over others, a daemon over a client,
//     the latest over others. If two peers with proven names are left, no claim is
//     believed, and the address is dialled. Connect never finds a session by an address
//     that was only said.
//   - A claim that Connect has believed is checked (accept.go of session2): we ask the
//     address itself whether it knows the session. If it does, the session counts as
//     dialled. If it does not, the session ends with a reset event, so that its user
//     connects again; later claims to that address are not believed, and it is dialled.
//     Without an answer the claim stays as it was: the peer may be behind a NAT.
//   - A session that we dialled ends all others with the same peer at that address, as the
//     peer has only that one.
//   - A peer that comes finds its own session under its client cookie and its name. It
//     finds a session by an address that was only said if it also names the address that
//     we dialled.
//   - A peer of another name is refused at a dialled address, and at an address whose
//     session has a socket or a proven name. No claim refuses a peer with a proven name: it
//     gets a session of its own, beside the others.
//   - So an unproven claim keeps no peer out once its socket is gone: we dial the address
//     to go on with the session, and only the peer of that name finds it. A session that
//     the peer there knows goes on. A new session begins there only if the claim came from
//     that IP, and no known peer has a better right to the address. Otherwise the claim
//     would choose the peer of a session in our own name, and end our session with that
//     peer. The new session keeps nothing of the claimed name.

// The reasons to be known by an address, by their rank.
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

// Found is the index of the peer at address a, of the known ones in the order of their
// sessions; -1: a has to be dialled. Disproved: a claim to a was wrong, so that none is
// believed.
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

// FoundAs is Found for the peer of a certain name: it excludes peers with another proven
// name, and finds a peer that has proven this name even if a claim was disproved.
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

// Doubles says whether l is a second session with the peer of by, which we dialled: the
// peer knows only by.
func (l *Lifecycle) Doubles(by *Lifecycle) bool {
	e, p := &l.Peer, &by.Peer
	return !e.Dialled && e.Target == p.Target && e.Type == p.Type && !l.Policy.Lossy &&
		e.NumberKnown && p.NumberKnown && e.Number == p.Number && p.Number >= 0
}

// Meant says which of the sessions of the first address of a frame the peer p of an
// accepted socket means, or which session is in its way; -1: none. same says whether
// the frame names session i, by its client cookie.
func Meant(p Peer, addrs wire.AddrVec, known []*Lifecycle, same func(i int) bool) int {
	meant, best := -1, 0
	front := addrs.Front()
	for i, s := range known {
		r := s.Peer.rank(front)
		switch {
		case !addrs.Contains(s.Peer.Target):
			continue
		case !s.Is(&p):
			if s.yields(&p) {
				continue
			}
			r = 0 // in the way of a peer without a session here
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

// MayBegin returns why no new session may begin with the process that answers at the
// peer's address, nil if one may.
func (l *Lifecycle) MayBegin(r *Run) error {
	p := &l.Peer
	switch {
	case p.Dialled:
		return nil
	case !p.Near:
		return fmt.Errorf("%w: no session is known at %v, which the peer has claimed from another IP", ErrWrongPeer, p.Target)
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

// Is says whether p can be the peer of the connection. A peer that has proven its name is nobody
// without a name, as those that come to a monitor in msgr1.
func (l *Lifecycle) Is(p *Peer) bool {
	e := &l.Peer
	if e.Type != p.Type || !sameEntity(e.Entity, p.Entity) || e.Proven && p.Entity == (wire.EntityName{}) {
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

// endedMax bounds each generation of Ended.
const endedMax = 1 << 15

// Ended remembers sessions that ended while handshakes were under way, with the
// last global_seq of the peer. A CLIENT_IDENT that is held up on one of those
// sockets would open another session under the client cookie of the ended one.
// The peer, which has gone on to a later socket and knows only the first, would
// resume it with sequences that belong to the other, and messages would be lost.
//
// No handshake outlives its deadline, and no entry has to live longer: the owner calls
// Age with at least that time between; entries in young then get old, and old ones are
// dropped. The zero value is empty. Its owner guards it.
type Ended struct {
	young, old map[Name]uint64
}

// Name identifies the session of a CLIENT_IDENT.
type Name struct {
	Peer   wire.Addr
	Cookie uint64 // of the client
}

// Remember notes the end of a session.
func (e *Ended) Remember(n Name, peerGlobalSeq uint64) {
	if len(e.young) >= endedMax {
		e.Age()
	}
	if e.young == nil {
		e.young = make(map[Name]uint64)
	}
	e.young[n] = max(peerGlobalSeq, e.young[n])
}

// Age drops entries from before the last call, and says whether any is left.
func (e *Ended) Age() (left bool) {
	e.young, e.old = nil, e.young
	return len(e.old) > 0
}

// IsStale says whether a CLIENT_IDENT is older than the end of its session.
func (e *Ended) IsStale(n Name, globalSeq uint64) bool {
	return globalSeq < max(e.young[n], e.old[n])
}
