package control

import (
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// view is what a connection shows of its session: why it is where it is, what was
// negotiated, where it is placed. Cores and the user see what was published last,
// without the messenger's lock; it guards the rest.
type view struct {
	now  atomic.Pointer[published]
	auth atomic.Pointer[auth.Result]

	err     error         // of the last attempt or fault
	changed chan struct{} // closed with the next change of state; nil: nobody waits for it
	info    *Info         // what was negotiated last, which never changes; nil: nothing yet
	place   Placement     // Core is out of date
}

// published is what may be asked of a connection without the messenger's lock.
type published struct {
	state    State
	peerType wire.EntityType
	err      error
	info     *Info // nil: nothing was negotiated yet
	place    Placement
}

// publish shows the session as it is now. The lock is held.
func (v *view) publish(s *machine) {
	v.now.Store(&published{state: s.State, err: v.err, peerType: s.Peer.Type, info: v.info, place: v.place})
}

// change returns a channel that closes with the next change of state. The lock is held.
func (v *view) change() <-chan struct{} {
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// stateChanged tells who waits for it. The lock is held.
func (v *view) stateChanged() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// keep keeps what was negotiated on the socket of an attempt. The lock is held.
func (v *view) keep(s *machine, a *attempt) {
	v.auth.Store(a.peer.Auth)
	peer := &s.Peer
	v.info = &Info{
		PeerType: peer.Type, PeerAddrs: peer.Addrs, PeerNumber: peer.Number, PeerEntity: peer.Entity,
		Features: s.Features, Protocol: a.talk.protocol(), Auth: a.peer.Auth.Method, Mode: a.peer.Mode,
		Compression: a.peer.Compression.String(), Lossy: s.Policy.Lossy, Accepted: a.accepted != nil, Handshake: a.took,
	}
	v.info.Local, v.info.Peer = a.ends()
}

// negotiated is what was negotiated last; the zero Info before. The lock is held.
func (v *view) negotiated() *Info {
	if v.info == nil {
		return new(Info)
	}
	return v.info
}

// placement is where the connection is, on the core that owns it now. The lock is held.
func (v *view) placement(on *dataplane.Core) Placement {
	p := v.place
	p.Core = on.ID()
	return p
}
