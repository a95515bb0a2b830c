package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Conn is one connection. It outlives its TCP connections as its policy says.
// All methods may be called by any goroutine, a dispatcher's included, unless
// they say otherwise.
type Conn struct {
	m      *Messenger
	h      *dataplane.Handler
	id     uint64
	user   atomic.Value // SetUserData
	policy *Policy      // that it was made with, which never changes; the present one is in s

	local    bool        // to ourselves: no handler is open, no socket
	over     atomic.Bool // nothing is dispatched any more
	userDown atomic.Bool // the user has marked it down, so that no reset event follows
	draining atomic.Bool
	handed   atomic.Bool // to another process
	closed   signal      // sent when the handler holds nothing any more

	// Its parts: each has what it needs, and a file with its rules.
	queue     dispatchQueue // received messages that wait for Dispatcher.Queued
	line      *dispatchLine // of delayed messages; nil: none are
	calls     calls         // requests that wait for their reply
	postings  postings      // memory that waits for data
	receiving receiving     // what stops it from reading (flow.go)
	reads     reading       // of files, for its replies (file_room.go)
	shown     view          // what it shows of its session
	out       outbox        // what has to be done for it (lock.go)
	leaving   leaving       // its moves from cores that end (cores_leave.go)

	nextMarked *Conn // in protocolLock.marked

	// The messenger's lock guards the rest.
	s       runner      // its session
	standby standby     // the wait for the peer (expire.go)
	claim   *claimCheck // of the address that its peer says it has; nil: nobody has asked for it
	hint    hinting     // the peer's owner core, by its cookie
	alias   wire.Addr   // of names: the v1 address of a peer of msgr2, under which it is known, too
	told1   wire.Addr   // who a peer of msgr1 was told that we are (talk1.go)
}

// newConn makes a connection with a session of its own. The lock is held.
func (m *Messenger) newConn(core *dataplane.Core, policy *Policy, s machine) *Conn {
	m.counters.Conns++
	c := &Conn{m: m, id: m.counters.Conns, policy: policy}
	c.s.c, c.s.machine = c, s
	c.receiving.bound(policy, &m.cfg, m.inFlight)
	c.calls.limit, c.postings.limit = int64(m.cfg.MaxCalls), int64(m.cfg.MaxPostings)
	c.line = m.inject.line()
	c.out.of = &m.mu
	handler := m.cfg.handlerConfig()
	handler.Owner, handler.Budget = owner{c}, m.sending
	c.h = dataplane.NewHandler(core, handler)
	m.all[c] = struct{}{}
	c.shown.publish(&c.s.machine)
	return c
}

// Send queues msg and takes over one reference to it; on an error that stays
// with the caller. On a lossless connection the message arrives exactly once
// and in order, whatever happens to TCP connections, unless a reset or remote
// reset event says that the session was lost. Messages of one goroutine leave in
// the order of its calls, within a priority. At the bound of the queue
// (Config.QueueBytes, QueueMessages, SendBytes) it returns ErrQueueFull. A
// received message that is queued no longer counts against
// Config.DispatchBytes.
func (c *Conn) Send(msg *Message) error {
	if c.local {
		return c.sendLocal(msg)
	}
	return c.sendError(c.h.Send(msg))
}

// sendError is what Send returns for an error of the handler.
func (c *Conn) sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dataplane.ErrFrozen) && c.draining.Load():
		return ErrClosed
	case errors.Is(err, dataplane.ErrFrozen), errors.Is(err, dataplane.ErrDropped) && c.handed.Load():
		return ErrHandedOver
	case errors.Is(err, dataplane.ErrDropped):
		return ErrClosed
	default:
		return err
	}
}

// lostError says why the session is gone.
func (c *Conn) lostError() error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrSessionLost, err)
	}
	return ErrSessionLost
}

// SendContext is Send, but it waits for room where Send returns ErrQueueFull,
// and for the outcome of a hand-over that is under way.
// Not for a dispatcher on a core.
func (c *Conn) SendContext(ctx context.Context, msg *Message) error {
	wait := func(err error) bool {
		return errors.Is(err, ErrQueueFull) || errors.Is(err, ErrHandedOver) && !c.handed.Load()
	}
	if err := c.Send(msg); !wait(err) {
		return err
	}
	for {
		room := c.h.Room()
		if err := c.Send(msg); !wait(err) {
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

// Keepalive sends a KEEPALIVE2. LastKeepaliveAck says which one the peer has
// answered last.
func (c *Conn) Keepalive() {
	if !c.local {
		c.h.Keepalive()
	}
}

// LastKeepaliveAck is the time of our last keepalive that the peer answered.
func (c *Conn) LastKeepaliveAck() time.Time { return c.h.LastKeepaliveAck().Time() }

// MarkDown closes the connection for good: at once, without a reset event,
// dropping what is queued for sending and what waits for Dispatcher.Queued. The
// peer sees what its own policy makes of a broken connection. A second call does
// nothing. During the last exchange of a hand-over it comes too late: the
// successor has the session. It does not wait.
func (c *Conn) MarkDown() {
	first := !c.userDown.Swap(true)
	c.h.Refuse()
	c.over.Store(true)
	if first {
		c.m.mu.marked.push(c)
		c.m.notifications.wake() // its goroutine takes the lock for us; a call back up
	}
}

// Closed is closed when the connection is over and nothing of it runs any more.
func (c *Conn) Closed() <-chan struct{} { return c.closed.sent() }

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
func (c *Conn) PeerType() wire.EntityType { return c.shown.now.Load().peerType }

// State is the present state.
func (c *Conn) State() State {
	if c.userDown.Load() {
		return StateClosing
	}
	return c.shown.now.Load().state
}

// Err is why the last attempt failed, the session faulted, or the connection
// ended; nil while it is ready.
func (c *Conn) Err() error {
	now := c.shown.now.Load()
	if now.state != StateClosing && c.userDown.Load() {
		return ErrMarkedDown
	}
	return now.err
}

// WaitReady waits until the connection is ready. It returns the error that
// ended the connection; ErrStuck where dialling again does not help, such as
// where the peer at the address has another nonce or speaks another protocol; or
// that of ctx joined with the one of the last attempt. StageOf and *Error say how
// far that came, Error.Advice what to look at.
// Not for a dispatcher on a core.
func (c *Conn) WaitReady(ctx context.Context) error {
	for {
		c.m.mu.Lock()
		state, err, changed, stuck := c.s.State, c.shown.err, c.shown.change(), c.s.streak.stuckError(c.shown.err)
		c.m.mu.Unlock()
		switch state {
		case StateReady:
			return nil
		case StateClosing:
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

// sendLocal delivers a message to our own dispatchers, on the goroutine of the
// connection's queue. It takes over the sender's reference.
func (c *Conn) sendLocal(msg *Message) error {
	if c.over.Load() {
		return ErrClosed
	}
	if err := c.h.Reserve(msg.Size()); err != nil {
		return err
	}
	c.queue.push(c.m, c, &c.m.chain.self, msg)
	return nil
}
