package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Conn is one connection. Its policy decides whether it outlives its TCP connections. Any
// goroutine may call its methods, a core's too, unless they say otherwise.
type Conn struct {
	m     *Messenger
	s     sessions.Conn // its session
	data  atomic.Value  // SetUserData
	local bool          // to ourselves: without a socket

	over     atomic.Bool // no message is dispatched any more
	draining atomic.Bool
	due      atomic.Pointer[atomic.Int64] // replies of the present session that Later has promised; the next session has another count

	// Its parts: each has a file with its rules.
	queue    dispatchQueue           // received messages that wait for Dispatcher.Queued
	calls    calls                   // requests that wait for their reply
	postings postings                // memory that waits for data
	reads    atomic.Pointer[reading] // of files, for its replies (file.go); nil: none so far
}

// owner is a messenger as package sessions knows it.
type owner struct{ m *Messenger }

// NewUser makes a connection for its session.
func (o owner) NewUser(local bool) sessions.User {
	c := &Conn{m: o.m, local: local}
	c.due.Store(new(atomic.Int64))
	return user{c}
}

// connOf is the connection of a session; nil for nil.
func connOf(s *sessions.Conn) *Conn {
	if s == nil {
		return nil
	}
	return s.User().(user).c
}

// Send queues msg and takes over one reference to it; after an error the caller keeps it. On a
// lossless connection the message arrives exactly once and in order, unless a reset or remote
// reset event says that the session was lost. Messages of one goroutine leave in the order of
// its calls, within a priority. At the bound of the queue (Config.Sending) it returns
// ErrQueueFull.
func (c *Conn) Send(msg *Message) error {
	if c.local {
		return c.sendLocal(msg)
	}
	return c.sendError(c.s.Handler().Send(msg))
}

// sendError is the error of Send or Drain for an error of the handler.
func (c *Conn) sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dataplane.ErrFrozen) && c.draining.Load():
		return ErrClosed
	case errors.Is(err, dataplane.ErrFrozen), c.s.HandedOver() && (errors.Is(err, dataplane.ErrDropped) || errors.Is(err, ErrUndelivered)):
		return ErrHandedOver
	case errors.Is(err, dataplane.ErrDropped) && errors.Is(c.Err(), ErrUnanswered):
		return fmt.Errorf("%w: %w", ErrClosed, c.Err())
	case errors.Is(err, dataplane.ErrDropped):
		if p := c.s.Policy(); p.Lossy && !p.Server && !c.s.MarkedDown() {
			return errLossyOver
		}
		return ErrClosed
	default:
		return err
	}
}

// lostError is ErrNotSent, ErrSessionLost or ErrRefused with the reason for the end of the session.
func (c *Conn) lostError(outcome error) error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("%w: %w", outcome, err)
	}
	return outcome
}

// SendContext is Send, but it waits for room in the queue, and for the outcome of a hand-over
// under way. Not on a core.
func (c *Conn) SendContext(ctx context.Context, msg *Message) error {
	if err := c.Send(msg); !c.mayWait(err) {
		return err
	}
	for {
		room := c.s.Handler().Room()
		if err := c.Send(msg); !c.mayWait(err) {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mayWait says that Send failed with err because there is no room now.
func (c *Conn) mayWait(err error) bool {
	return errors.Is(err, ErrQueueFull) || errors.Is(err, ErrHandedOver) && !c.s.HandedOver()
}

// Room returns a channel that closes once the sending queue has more room than now, or the
// connection is over: take it before Send, and wait for it after ErrQueueFull.
func (c *Conn) Room() <-chan struct{} { return c.s.Handler().Room() }

// Keepalive sends a KEEPALIVE2. Dispatcher.KeepaliveAck gets the answer.
func (c *Conn) Keepalive() {
	if !c.local {
		c.s.Handler().Keepalive()
	}
}

// MarkDown ends the connection at once and without a reset event. Queued messages, and those
// that wait for Dispatcher.Queued, are dropped. For the peer it is a broken connection. In the
// last exchange of a hand-over it comes too late: the successor has the session.
func (c *Conn) MarkDown() { c.s.MarkDown() }

// Closed is closed when the connection is over and no callback of it runs any more.
func (c *Conn) Closed() <-chan struct{} { return c.s.Closed() }

// SetUserData attaches v to the connection, for the user alone. It survives faults, replaces
// and remote resets. All values of one connection must have the same type.
func (c *Conn) SetUserData(v any) { c.data.Store(v) }

// UserData is the last value of SetUserData.
func (c *Conn) UserData() any { return c.data.Load() }

// Core is the core that owns the connection now; nil for the connection to ourselves. In the
// events of the connection that is the core on which they run; elsewhere it may change at any
// moment.
func (c *Conn) Core() *loop.Core {
	if c.local {
		return nil
	}
	return c.s.Handler().Core()
}

// Post runs t soon on the core that then owns the connection (loop.Owner). For the connection
// to ourselves that is any core.
func (c *Conn) Post(t *loop.Task) { c.s.Handler().Post(t) }

// ID numbers the connection within its messenger, from 1.
func (c *Conn) ID() uint64 { return c.s.ID() }

// State is the present state.
func (c *Conn) State() State { return c.s.State() }

// Err is the reason why the last attempt failed, the session faulted, or the connection ended;
// nil while it is ready.
func (c *Conn) Err() error { return c.s.Err() }

// WaitReady waits until the connection is ready. It returns the error that ended the
// connection; ErrStuck where dialling again does not help; or the cause of ctx with the error
// of the last attempt. An *Error in it has the stage and the remedy. Not on a core.
func (c *Conn) WaitReady(ctx context.Context) error { return c.s.WaitReady(ctx) }

// Info are the results of the last handshake of a Conn; go doc control/internal/sessions.Info has
// its fields.
type Info = sessions.Info

// Info are the results of the last handshake; before the first only PeerType and Unanswered are
// set. The Accept and Connect events have it already; Handshake is the time up to them. It
// takes no lock.
func (c *Conn) Info() Info { return c.s.Info() }

// Auth is the result of the last authentication, with its secrets wiped; nil before the first.
// It must not be changed.
func (c *Conn) Auth() *auth.Result { return c.s.Auth() }

// SetAuth sets the result of an authentication by messages, on a connection of msgr1 to a
// monitor, whose handshake has none. It holds until the next handshake.
func (c *Conn) SetAuth(res *auth.Result) { c.s.SetAuth(res) }

// sendLocal delivers a message to our own dispatchers, on the goroutine of the
// connection's queue. It takes over the sender's reference.
func (c *Conn) sendLocal(msg *Message) error {
	if c.over.Load() {
		return ErrClosed
	}
	size := msg.Size() // the message is another's once it waits
	if err := c.s.Handler().Reserve(size); err != nil {
		return err
	}
	if !c.queue.push(c.m, c, &c.m.chain.self, msg) {
		c.s.Handler().Unreserve(size)
		return ErrClosed
	}
	return nil
}

// Flow control of one connection. Received messages that the user keeps count against three
// bounds: of the messenger (Config.Receiving.Bytes), of its policy, and of the connection
// (Config.Receiving.ConnBytes), so that a user who keeps many messages of one peer stops
// that peer before the others. Pause stops a peer at once.

// Pause stops reading from the peer, over reconnects too, until Resume; keepalives are not
// missed. Those of the peer have no answer meanwhile: where it bounds their time, a longer pause
// ends the socket. The core may dispatch one more message. Acks are not read either: on a lossless
// connection sent messages stay in our queue. It has no effect on the connection to ourselves.
// It does not wait.
func (c *Conn) Pause() {
	if !c.local {
		c.s.Handler().Pause()
	}
}

// Resume ends a Pause, or a stop by Config.Diagnostics.Probe. It does not wait.
func (c *Conn) Resume() { c.s.Handler().Resume() }
