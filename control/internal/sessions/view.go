package sessions

import (
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// view is the part of a session that its connection shows: the reason of its state, the
// outcome of the negotiation, its core. Cores and the user read the last published state
// without the lock of sessions; the lock guards the rest.
type view struct {
	now  atomic.Pointer[published]
	auth atomic.Pointer[auth.Result]

	err     error           // of the last attempt or fault
	changed chan struct{}   // closed with the next change of state; nil: no goroutine waits for it
	info    *Info           // of the last handshake; it never changes; nil: none yet
	place   stats.Placement // Core is out of date
}

// published is the part of a connection that is read without the lock of sessions.
type published struct {
	state    session.State
	peerType wire.EntityType
	err      error
	info     *Info // nil: there was no handshake yet
	place    stats.Placement
}

// publishLocked shows the session as it is now.
func (v *view) publishLocked(s *machine) {
	v.now.Store(&published{state: s.State, err: v.err, peerType: s.Peer.Type, info: v.info, place: v.place})
}

// changeLocked returns a channel that closes with the next change of state.
func (v *view) changeLocked() <-chan struct{} {
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// stateChangedLocked wakes the goroutines that wait for a change of state.
func (v *view) stateChangedLocked() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// keepLocked keeps the results of the handshake of an attempt.
func (v *view) keepLocked(s *machine, a *attempt) {
	v.auth.Store(a.peer.Auth)
	peer := &s.Peer
	v.info = &Info{
		PeerType: peer.Type, PeerAddrs: peer.Addrs, PeerNumber: peer.Number, PeerEntity: peer.Entity,
		Features: s.Features, Protocol: a.talk.protocol(), Auth: a.peer.Auth.Method, Mode: a.peer.Mode,
		Compression: a.peer.Compression.String(), Lossy: s.Policy.Lossy, Accepted: a.accepted != nil, Handshake: a.took,
	}
	v.info.Local, v.info.Peer = a.ends()
}

// negotiatedLocked are the results of the last handshake; the zero Info before.
func (v *view) negotiatedLocked() *Info {
	if v.info == nil {
		return new(Info)
	}
	return v.info
}

// placementLocked is where the connection is, on the core that owns it now.
func (v *view) placementLocked(on *loop.Core) stats.Placement {
	p := v.place
	p.Core = on.ID()
	return p
}

// Info describes the last TCP connection of a Conn: the results of its handshake, and how it
// receives.
type Info struct {
	PeerType    wire.EntityType
	PeerAddrs   wire.AddrVec
	PeerNumber  int64           // gid
	PeerEntity  wire.EntityName // as it authenticated itself to us; zero if we connected
	Features    wire.Features   // features that both sides support
	Protocol    string          // msgr2.0, msgr2.1 or Msgr1
	Auth        auth.Method
	Mode        auth.Mode
	Compression string // none, snappy, zlib, zstd or lz4
	Lossy       bool
	Accepted    bool // by us, else dialled by us
	Handshake   time.Duration
	Local, Peer string // socket addresses
	Placement   stats.Placement
	// Unanswered is since when it dials without an answer: when it lost its last socket, or
	// Connect was called. Zero: it does not dial, or was answered.
	Unanswered time.Time
	// Receive is the way in which it receives now: loop.ReceiveBuffers, by the ring into
	// buffers that the connections of the core share, or loop.ReceiveReady, by readiness
	// and direct reads. ReceiveWhy is the reason. Both change with the traffic, and are
	// empty without a TCP connection that carries messages, possibly still in the Accept
	// and Connect events.
	Receive    loop.ReceiveMode
	ReceiveWhy loop.Why
	// Unreleased are the received bytes that are not released while these stop it from reading,
	// and ThrottledFor is the time since then; 0 while it reads.
	Unreleased   int64
	ThrottledFor time.Duration
}

// Info describes the last TCP connection; before the first complete handshake all fields but PeerType
// and Unanswered are zero. It is set in the Accept and Connect events; Handshake is the time up to
// them. It takes no lock, and waits for no core. Any goroutine, a core's too.
func (c *Conn) Info() Info {
	now := c.shown.now.Load()
	if now.info == nil {
		return Info{PeerType: now.peerType, Unanswered: c.silent.Since()}
	}
	info := *now.info
	info.Unanswered = c.silent.Since()
	info.Placement = now.place
	info.Placement.Core = c.h.Core().ID()
	info.Receive, info.ReceiveWhy = c.h.Receives()
	info.Unreleased, info.ThrottledFor = c.Unreleased()
	return info
}

// Auth is the result of authentication on the last TCP connection, with its secrets wiped; nil
// before the first. It must not be changed. Any goroutine may call it, a core's too.
func (c *Conn) Auth() *auth.Result { return c.shown.auth.Load() }

// SetAuth sets the result of authentication by messages, on a connection of msgr1 to a monitor
// of ours, where the handshake has no result. It holds until the next handshake of the
// connection. Any goroutine may call it, a core's too.
func (c *Conn) SetAuth(res *auth.Result) { c.shown.auth.Store(res) }
