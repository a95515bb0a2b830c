package session

import "github.com/ringmsgr/ringmsgr/control/wire"

// endedMax bounds each generation of Ended.
const endedMax = 1 << 15

// Ended remembers sessions that ended while handshakes were under way, with the
// last global_seq of the peer. A CLIENT_IDENT that is held up on one of those
// sockets would open another session under the client cookie of the ended one.
// The peer, which has gone on to a later socket and knows only the first, would
// resume it with sequences that belong to the other, and messages would be lost.
//
// No handshake outlives its deadline, and no entry has to live longer: the owner calls
// Age once per deadline; entries in young then get old, and old ones are dropped. The
// zero value is empty. Its owner guards it.
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
