package control

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Conn is one connection. It outlives its TCP connections as its policy says.
// All methods may be called by any goroutine, a dispatcher's included, unless
// they say otherwise.
type Conn struct {
	m     *Messenger
	h     *dataplane.Handler
	id    uint64
	user  atomic.Value // SetUserData
	queue dispatchQueue
	local bool        // to ourselves: no handler is open, no socket
	over  atomic.Bool // nothing is dispatched any more
	// userDown: the user has marked it down, so that no reset event follows.
	userDown atomic.Bool
	handed   atomic.Bool // to another process
	// migrating counts the ways that are not at their end from a core that is
	// gone, or about to go.
	migrating atomic.Int32
	auth      atomic.Pointer[auth.Result]
	closed    chan struct{} // closed when the handler has let go of everything
	limits    dataplane.Throttles

	// The rest is guarded by the messenger's lock.
	state       State
	policy      Policy
	anonymous   bool
	once        bool // no second attempt
	frozen      bool // stands still for a hand-over
	userKnows   bool // the user holds it, by Connect or by an event
	target      wire.Addr
	peerType    wire.EntityType
	peerAddrs   wire.AddrVec
	peerNumber  int64 // gid; valid if numberKnown
	numberKnown bool
	peerEntity  wire.EntityName // as authenticated; zero: not known

	// The session (msgr2.md 9.1).
	clientCookie  uint64
	serverCookie  uint64
	hint          hinting // the peer's owner core, by its cookie
	globalSeq     uint64  // of the attempt under way
	peerGlobalSeq uint64
	connectSeq    uint64
	features      wire.Features // intersection

	mirror     dataplane.Mirror // of the handler, while it is not open
	heardIn    uint64           // number of the last note
	covered    uint64           // notes up to this number are older than the mirror
	earlyNotes []note
	att        *attempt // owner of the socket that is not the handler's
	backoff    time.Duration
	timer      *backoffTimer
	err        error         // of the last attempt or fault
	changed    chan struct{} // closed and replaced with every change of state
	info       Info
	place      Placement // Core is out of date
	counters   ConnCounters
}

// attempt is one goroutine that works on a socket for a connection. Whoever
// takes the connection over cancels it and waits for done; what it does after
// that changes nothing, as every step checks that it is still conn.att.
type attempt struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
}

func (m *Messenger) newAttempt() *attempt {
	a := &attempt{done: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancelCause(m.ctx)
	return a
}

// newConn makes a connection in state none. The lock is held.
func (m *Messenger) newConn(core *dataplane.Core, policy Policy) *Conn {
	m.counters.Conns++
	c := &Conn{
		m: m, id: m.counters.Conns, policy: policy,
		closed: make(chan struct{}), changed: make(chan struct{}),
		limits: dataplane.Throttles{Messages: policy.Messages, Bytes: policy.Bytes, Dispatch: m.inFlight},
	}
	c.h = dataplane.NewHandler(core, dataplane.HandlerConfig{
		Owner: owner{c}, QueueBytes: m.cfg.QueueBytes, QueueMessages: m.cfg.QueueMessages,
	})
	m.all[c] = struct{}{}
	return c
}

// Send queues msg and takes over one reference to it; on an error that stays
// with the caller. On a lossless connection the message arrives exactly once
// and in order, whatever happens to TCP connections, unless a reset or remote
// reset event says that the session was lost. Messages of one goroutine leave in
// the order of its calls, within a priority. At the bound of the queue
// (Config.QueueBytes, QueueMessages) it returns ErrQueueFull.
func (c *Conn) Send(msg *Message) error {
	if c.local {
		return c.sendLocal(msg)
	}
	switch err := c.h.Send(msg); {
	case err == nil:
		return nil
	case errors.Is(err, dataplane.ErrFrozen), errors.Is(err, dataplane.ErrDropped) && c.handed.Load():
		return ErrHandedOver
	case errors.Is(err, dataplane.ErrDropped):
		return ErrClosed
	default:
		return err
	}
}

// SendContext is Send, but it waits for room where Send returns ErrQueueFull,
// and for the outcome of a hand-over that is under way.
// Not for a dispatcher on a core.
func (c *Conn) SendContext(ctx context.Context, msg *Message) error {
	for {
		room := c.h.Room()
		err := c.Send(msg)
		if !errors.Is(err, ErrQueueFull) && (!errors.Is(err, ErrHandedOver) || c.handed.Load()) {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Room returns a channel that closes once the sending queue has more room than
// now, or the connection is over; for those who must not block. Take it first,
// then Send, and wait for it after ErrQueueFull. Any goroutine.
func (c *Conn) Room() <-chan struct{} { return c.h.Room() }

// Keepalive asks the peer for a sign of life. LastKeepaliveAck tells of it.
func (c *Conn) Keepalive() {
	if !c.local {
		c.h.Keepalive()
	}
}

// LastKeepaliveAck is the time of our last keepalive that the peer answered.
func (c *Conn) LastKeepaliveAck() time.Time { return c.h.LastKeepaliveAck().Time() }

// MarkDown closes the connection for good: at once, without a reset event,
// dropping what is queued. The peer sees what its own policy makes of a broken
// connection. A second call does nothing. During the last exchange of a hand-over
// it comes too late: the successor has the session.
func (c *Conn) MarkDown() {
	c.userDown.Store(true)
	c.h.Refuse()
	c.over.Store(true)
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.close(false, ErrMarkedDown)
}

// Closed is closed when the connection is over and nothing of it runs any more.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// SetUserData attaches v to the connection, for the user alone. It stays over
// faults, replaces and remote resets: what of it belonged to the old session is
// for Dispatcher.RemoteReset to drop. All values of one connection must have
// the same type.
func (c *Conn) SetUserData(v any) { c.user.Store(v) }

// UserData is what SetUserData attached last.
func (c *Conn) UserData() any { return c.user.Load() }

// Core is the number of the core that owns the connection now.
func (c *Conn) Core() int { return c.h.Core().ID() }

// ID numbers the connection within its messenger, from 1.
func (c *Conn) ID() uint64 { return c.id }

// PeerType is the type of the peer's entity.
func (c *Conn) PeerType() wire.EntityType {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.peerType
}

// State is the present state.
func (c *Conn) State() State {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.state
}

// Err is why the last attempt failed, the session faulted, or the connection
// ended; nil while it is ready.
func (c *Conn) Err() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.err
}

// WaitReady waits until the connection is ready. It returns the error that
// ended the connection, or that of ctx joined with the one of the last attempt.
// Not for a dispatcher on a core.
func (c *Conn) WaitReady(ctx context.Context) error {
	for {
		c.m.mu.Lock()
		state, err, changed := c.state, c.err, c.changed
		c.m.mu.Unlock()
		switch state {
		case StateReady:
			return nil
		case StateClosing:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// move changes the state by the transition table. The lock is held. An illegal
// pair is a bug of ours: it is logged, and the state stays.
func (c *Conn) move(e event) bool {
	to, err := next(c.state, e)
	if err != nil {
		c.m.cfg.Logger.Error("illegal transition", "conn", c.id, "peer", c.peerText(), "err", err)
		c.m.counters.IllegalTransitions++
		return false
	}
	if c.m.cfg.Logger.Enabled(c.m.ctx, levelState) {
		c.m.cfg.Logger.Log(c.m.ctx, levelState, "state", "conn", c.id, "peer", c.peerText(), "from", c.state, "event", e, "to", to)
	}
	c.state = to
	close(c.changed)
	c.changed = make(chan struct{})
	return true
}

// peerText names the peer in errors and logs.
func (c *Conn) peerText() string {
	if !c.target.IsBlank() {
		return c.target.String()
	}
	return c.peerAddrs.String()
}

// close ends the connection. The lock is held. reset: tell the user.
func (c *Conn) close(reset bool, err error) { c.closeFor(reset, false, err) }

func (c *Conn) closeFor(reset, replace bool, err error) {
	if c.state == StateClosing {
		return
	}
	c.move(evClose)
	c.h.Refuse() // nothing is dispatched behind the reset event
	c.err = err
	c.stopTimer()
	if c.att != nil {
		c.att.cancel(err)
	}
	c.m.rememberEnd(c)
	c.unregister()
	if c.local {
		c.m.local = nil
	}
	delete(c.m.all, c)
	if reset && c.userKnows {
		c.over.Store(true)
		c.h.Notify(resetEvent{replace})
		c.counters.Resets++
	}
	c.m.counters.Closed++
	c.h.Close(func() {
		c.over.Store(true)
		close(c.closed)
	})
}

// unregister takes the connection out of the address map. The lock is held.
func (c *Conn) unregister() {
	for _, a := range [2]wire.Addr{c.target, c.peerAddrs.Front()} {
		if c.m.conns[a] == c {
			delete(c.m.conns, a)
		}
	}
}

func (c *Conn) stopTimer() {
	if c.timer != nil {
		c.timer.stop()
		c.timer = nil
	}
}

// sendLocal delivers a message to our own dispatchers, on the goroutine of the
// connection's queue.
func (c *Conn) sendLocal(msg *Message) error {
	if c.over.Load() {
		return ErrClosed
	}
	if err := c.h.Reserve(msg.Size()); err != nil {
		return err
	}
	c.m.dispatchLocal(c, msg)
	return nil
}
