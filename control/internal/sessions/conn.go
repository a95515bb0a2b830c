package sessions

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steplock"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Conn is the session side of one connection. The User holds it. Any goroutine may call
// its methods, a core's too, unless they say otherwise.
type Conn struct {
	m         *Manager
	user      User
	h         *dataplane.Handler
	id        uint64
	policy    *Policy        // that it was made with, which never changes; the present one is in s
	throttles loop.Throttles // of received messages

	local      bool        // to ourselves: no handler is open, no socket
	markedDown atomic.Bool // by its user, so that no reset event follows
	handed     atomic.Bool // to another process
	closed     signal      // sent when the handler is empty

	shown view            // the part of its session that it shows
	out   steplock.Outbox // actions to be carried out for it
	moves atomic.Int32    // under way, from cores that are removed or have failed

	nextMarked *Conn                   // in Manager.marked
	silence    atomic.Pointer[silence] // nil: it does not dial, or is answered; the outbox changes it

	// The Manager's lock guards the rest.
	s       runner        // its session
	listed  *list.Element // in Manager.all
	standby standby       // the wait for the peer
	claim   *claimCheck   // of the address that its peer claims; nil: Connect has not returned it
	hint    hinting       // the peer's owner core, by its cookie
	alias   wire.Addr     // of names: the v1 address of a peer of msgr2, under which it is known, too
	told1   wire.Addr     // our own address in the last handshake with a peer of msgr1 (msgr1.go)
}

// newConnLocked makes a connection with a session of its own.
func (m *Manager) newConnLocked(core *loop.Core, policy *Policy, s machine, local bool) *Conn {
	m.counters.Conns++
	user := m.owner.NewUser(local)
	c := user.Conn()
	c.m, c.user, c.id, c.policy, c.local = m, user, m.counters.Conns, policy, local
	c.s.c, c.s.machine = c, s
	c.throttles = loop.Throttles{Frames: policy.Messages, Bytes: policy.Bytes, Shared: m.cfg.InFlight, Share: m.cfg.Share}
	if policy.Bytes == nil && m.cfg.ConnBytes > 0 {
		c.throttles.Bytes = loop.NewThrottle(m.cfg.ConnBytes)
	}
	c.out.Of(&m.mu)
	handler := m.cfg.Handler
	handler.Owner = user
	c.h = dataplane.NewHandler(core, handler)
	c.listed = m.all.PushBack(c)
	c.shown.publishLocked(&c.s.machine)
	return c
}

// User is the upper side of the connection.
func (c *Conn) User() User { return c.user }

// Handler is the I/O side of the connection, which stays the same.
func (c *Conn) Handler() *dataplane.Handler { return c.h }

// ID numbers the connection within its Manager, from 1.
func (c *Conn) ID() uint64 { return c.id }

// Policy is the one that the connection was made with. It does not change.
func (c *Conn) Policy() *Policy { return c.policy }

// HandedOver says that another process has the session.
func (c *Conn) HandedOver() bool { return c.handed.Load() }

// Closed is closed when the connection is over and nothing of it runs any more.
func (c *Conn) Closed() <-chan struct{} { return c.closed.sent() }

// MarkDown closes the connection for good, without a Reset. It does not wait: the next holder
// of the lock ends the session.
func (c *Conn) MarkDown() {
	first := !c.markedDown.Swap(true)
	c.h.Refuse()
	c.user.Cease()
	if first {
		c.m.marked.push(c)
		c.m.notifications.wake() // its goroutine takes the lock for us
	}
}

// MarkedDown says that the user has closed the connection, or Rebind has.
func (c *Conn) MarkedDown() bool { return c.markedDown.Load() }

// Peer is a copy of the facts about the peer.
func (c *Conn) Peer() session.Peer {
	c.m.lock()
	defer c.m.unlock()
	return c.s.Peer
}

// State is the present state.
func (c *Conn) State() session.State {
	if c.markedDown.Load() {
		return session.Closing
	}
	return c.shown.now.Load().state
}

// Err is why the last attempt failed, the session faulted, or the connection
// ended; nil while it is ready.
func (c *Conn) Err() error {
	now := c.shown.now.Load()
	if now.state != session.Closing && c.markedDown.Load() {
		return ErrMarkedDown
	}
	return now.err
}

// WaitReady waits until the connection is ready, has ended, or is stuck (ErrStuck). Not on
// a core.
func (c *Conn) WaitReady(ctx context.Context) error {
	for {
		c.m.lock()
		state, err, changed, stuck := c.s.State, c.shown.err, c.shown.changeLocked(), c.s.streak.stuckErrorLocked(c.shown.err)
		c.m.unlock()
		switch state {
		case session.Ready:
			return nil
		case session.Closing:
			return err
		}
		if stuck != nil {
			return stuck
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// Stats takes a snapshot. It waits for the owning core's next turn: not on a core.
func (c *Conn) Stats() (stats.ConnStats, error) {
	io, err := c.h.Stats()
	_, held := c.h.QueuedOut()
	now := c.m.cfg.Clock.Now()
	c.m.lock()
	defer c.m.unlock()
	info, place := cmp.Or(c.shown.info, new(Info)), c.shown.place
	place.Core = c.h.Core().ID()
	st := stats.ConnStats{
		ID: c.id, Peer: c.s.peerText(), PeerType: c.s.Peer.Type.String(), State: c.s.State.String(), Policy: c.policy.Name, Lossy: c.s.Policy.Lossy,
		ConnectSeq: c.s.ConnectSeq, GlobalSeq: c.s.GlobalSeq,
		Placement: place, Counters: c.s.counters, IO: io, Protocol: info.Protocol, Compression: info.Compression,
		LastSeen: c.s.seen, Unanswered: c.silentSince(), Remote: info.Peer, HeldBytes: held, Throttles: c.throttleStats(),
	}
	if c.s.State == session.Ready {
		st.LastSeen = now.Add(-io.Quiet)
	}
	_, st.ThrottledFor = c.Unreleased()
	own := c.s.rules.Record()
	st.ClientCookie, st.ServerCookie = own.ClientCookie != 0, own.ServerCookie != 0
	if info.PeerEntity != (wire.EntityName{}) {
		st.Entity = info.PeerEntity.String()
	}
	if info.Mode != 0 {
		st.Auth, st.Mode = info.Auth.String(), info.Mode.String()
	}
	if c.shown.err != nil {
		st.Error = c.shown.err.Error()
	}
	return st, err
}

// Unreleased are the received bytes that are not released while these stop the connection from
// reading, and for how long they do; 0 while it reads. Any goroutine.
func (c *Conn) Unreleased() (bytes int64, long time.Duration) {
	since, yes := c.throttles.Stopped()
	if !yes {
		return 0, 0
	}
	return c.throttles.Held(), max(c.h.Core().Config().Now()-since, 0)
}

// throttleStats are the throttles of the connection that have a limit.
func (c *Conn) throttleStats() (list []stats.ThrottleStats) {
	bytes := "bytes"
	if c.policy.Bytes == nil {
		bytes = "connection"
	}
	t := &c.throttles
	for _, one := range []struct {
		of string
		t  *loop.Throttle
	}{{"messages", t.Frames}, {bytes, t.Bytes}, {"dispatch", t.Shared}} {
		if one.t != nil && one.t.Limit() > 0 {
			list = append(list, stats.ThrottleStats{Of: one.of, Used: one.t.Used(), Limit: one.t.Limit(), Waiting: one.t.Waiting()})
		}
	}
	return list
}

// signal is sent once. Its channel is made when somebody first asks for it: most
// connections end without. Any goroutine.
type signal struct{ ch atomic.Pointer[chan struct{}] }

// sent returns a channel that closes when the signal is sent.
func (s *signal) sent() <-chan struct{} { return *s.channel() }

// send sends the signal. It may be called once.
func (s *signal) send() { close(*s.channel()) }

func (s *signal) channel() *chan struct{} {
	if ch := s.ch.Load(); ch != nil {
		return ch
	}
	made := make(chan struct{})
	s.ch.CompareAndSwap(nil, &made) // or another one was faster
	return s.ch.Load()
}

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
	entity := peer.Entity
	if a.accepted != nil {
		entity = cmp.Or(entity, a.peer.Auth.Entity) // the session does not keep a name that was only said
	}
	v.info = &Info{
		PeerType: peer.Type, PeerAddrs: peer.Addrs, PeerNumber: peer.Number, PeerEntity: entity,
		Features: s.Features, Protocol: a.talk.protocol(), Auth: a.peer.Auth.Method, Mode: a.peer.Mode,
		Compression: a.peer.Compression.String(), Lossy: s.Policy.Lossy, Accepted: a.accepted != nil, Handshake: a.took,
	}
	v.info.Local, v.info.Peer = a.ends()
}

// Info describes the last TCP connection of a Conn: the results of its handshake, and how it receives.
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
		return Info{PeerType: now.peerType, Unanswered: c.silentSince()}
	}
	info := *now.info
	info.Unanswered = c.silentSince()
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
