package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Conn is one connection. It outlives its TCP connections as its policy says.
// All methods may be called by any goroutine, a dispatcher's included, unless
// they say otherwise.
type Conn struct {
	m     *Messenger
	s     sessions.Conn // its session
	data  atomic.Value  // SetUserData
	local bool          // to ourselves: no handler is open, no socket

	over     atomic.Bool // nothing is dispatched any more
	draining atomic.Bool
	paused   atomic.Bool  // by Pause
	due      atomic.Int64 // replies that Later has promised

	// Its parts: each has a file with its rules.
	queue    dispatchQueue           // received messages that wait for Dispatcher.Queued
	calls    calls                   // requests that wait for their reply
	postings postings                // memory that waits for data
	reads    atomic.Pointer[reading] // of files, for its replies (file.go); nil: none so far
}

// owner is a messenger as its sessions have it.
type owner struct{ m *Messenger }

// NewUser makes a connection for its session.
func (o owner) NewUser(local bool) sessions.User {
	c := &Conn{m: o.m, local: local}
	return user{c}
}

// connOf is the connection that has a session; nil has none.
func connOf(s *sessions.Conn) *Conn {
	if s == nil {
		return nil
	}
	return s.User().(user).c
}

// Send queues msg and takes over one reference to it; on an error that stays
// with the caller. On a lossless connection the message arrives exactly once
// and in order, whatever happens to TCP connections, unless a reset or remote
// reset event says that the session was lost. Messages of one goroutine leave in
// the order of its calls, within a priority. At the bound of the queue
// (Config.Sending) it returns ErrQueueFull. A
// received message that is queued no longer counts against
// Config.Receiving.Bytes.
func (c *Conn) Send(msg *Message) error {
	if c.local {
		return c.sendLocal(msg)
	}
	return c.sendError(c.s.Handler().Send(msg))
}

// sendError is the error of Send for an error of the handler.
func (c *Conn) sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dataplane.ErrFrozen) && c.draining.Load():
		return ErrClosed
	case errors.Is(err, dataplane.ErrFrozen), errors.Is(err, dataplane.ErrDropped) && c.s.HandedOver():
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

// lostError is the error what, with the reason why the session is gone.
func (c *Conn) lostError(what error) error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("%w: %w", what, err)
	}
	return what
}

// SendContext is Send, but it waits for room where Send returns ErrQueueFull,
// and for the outcome of a hand-over that is under way.
// Not for a dispatcher on a core.
func (c *Conn) SendContext(ctx context.Context, msg *Message) error {
	wait := func(err error) bool {
		return errors.Is(err, ErrQueueFull) || errors.Is(err, ErrHandedOver) && !c.s.HandedOver()
	}
	if err := c.Send(msg); !wait(err) {
		return err
	}
	for {
		room := c.s.Handler().Room()
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

// Room returns a channel that closes once the sending queue has more room than now, or the
// connection is over. It is for callers that must not block: take it first, then Send, and
// wait for it after ErrQueueFull. Any goroutine.
func (c *Conn) Room() <-chan struct{} { return c.s.Handler().Room() }

// Keepalive sends a KEEPALIVE2. Dispatcher.KeepaliveAck is told of the answer.
func (c *Conn) Keepalive() {
	if !c.local {
		c.s.Handler().Keepalive()
	}
}

// MarkDown closes the connection for good: at once and without a reset event. Messages that
// are queued for sending, or wait for Dispatcher.Queued, are dropped. For the peer it is a
// broken connection, by its own policy. A second call does nothing. During the last exchange
// of a hand-over it comes too late: the successor has the session. It does not wait.
func (c *Conn) MarkDown() { c.s.MarkDown() }

// Closed is closed when the connection is over and nothing of it runs any more.
func (c *Conn) Closed() <-chan struct{} { return c.s.Closed() }

// SetUserData attaches v to the connection, for the user alone. It stays over faults, replaces
// and remote resets: Dispatcher.RemoteReset has to drop the parts of it that belonged to the
// old session. All values of one connection must have the same type.
func (c *Conn) SetUserData(v any) { c.data.Store(v) }

// UserData is the last value of SetUserData.
func (c *Conn) UserData() any { return c.data.Load() }

// Core is the core that owns the connection now. In Dispatcher.Fast, in the events of the
// connection, and in Request.Done that is the core on which they run; elsewhere it may change
// at any moment. It is nil for the connection to ourselves, whose dispatchers run on no core.
// It takes no lock. Any goroutine.
func (c *Conn) Core() *loop.Core {
	if c.local {
		return nil
	}
	return c.s.Handler().Core()
}

// Post has t run soon on the core that owns the connection by then, whatever cores it moves
// between (loop.Owner). For the connection to ourselves that is any core. Any goroutine, a
// core's too.
func (c *Conn) Post(t *loop.Task) { c.s.Handler().Post(t) }

// ID numbers the connection within its messenger, from 1.
func (c *Conn) ID() uint64 { return c.s.ID() }

// PeerType is the type of the peer's entity.
func (c *Conn) PeerType() wire.EntityType { return c.s.PeerType() }

// State is the present state.
func (c *Conn) State() State { return c.s.State() }

// Err is why the last attempt failed, the session faulted, or the connection
// ended; nil while it is ready.
func (c *Conn) Err() error { return c.s.Err() }

// WaitReady waits until the connection is ready. It returns the error that
// ended the connection; ErrStuck where dialling again does not help, such as
// where the peer at the address has another nonce or speaks another protocol; or
// that of ctx joined with the one of the last attempt. StageOf and *Error say how
// far that came, Error.Advice what to look at.
// Not for a dispatcher on a core.
func (c *Conn) WaitReady(ctx context.Context) error { return c.s.WaitReady(ctx) }

// Info is what was negotiated on the last TCP connection of a Conn, and how that receives.
type Info = sessions.Info

// Info is what was negotiated last; all but Unanswered is zero before the first handshake
// is complete. It is there in the Accept and Connect events; Handshake is the
// time up to them. It takes no lock, and waits for no core. Any goroutine, a core's too.
func (c *Conn) Info() Info { return c.s.Info() }

// Auth is what authentication found on the last TCP connection, with its
// secrets wiped; nil before the first. It must not be changed. Any goroutine
// may call it, a core's too.
func (c *Conn) Auth() *auth.Result { return c.s.Auth() }

// SetAuth says what authentication by messages has found, on a connection of msgr1 to a
// monitor of ours, where the handshake finds nothing. It holds until the next handshake
// of the connection. Any goroutine may call it, a core's too.
func (c *Conn) SetAuth(res *auth.Result) { c.s.SetAuth(res) }

// IsLoopback says whether this is the connection to ourselves.
func (c *Conn) IsLoopback() bool { return c.local }

// sendLocal delivers a message to our own dispatchers, on the goroutine of the
// connection's queue. It takes over the sender's reference.
func (c *Conn) sendLocal(msg *Message) error {
	if c.over.Load() {
		return ErrClosed
	}
	if err := c.s.Handler().Reserve(msg.Size()); err != nil {
		return err
	}
	c.queue.push(c.m, c, &c.m.chain.self, msg)
	return nil
}

// Flow control for one connection. What its user keeps of received messages counts
// against three bounds: that of the messenger (Config.Receiving.Bytes), those of its
// policy, and its own (Config.Receiving.ConnBytes), so that one user who keeps much stops its
// own peer before it stops the others. Pause stops a peer at once.

// Pause stops reading from the peer, over reconnects too, until Resume: the peer's
// queue fills, and its keepalives are not missed. The core may dispatch a message
// that is on its way. Acks of the peer are not read either: on a lossless connection
// what we send stays in our queue. The pause is in Stats (IO.Paused). It has no effect
// on the connection to ourselves. Any goroutine; it does not wait.
func (c *Conn) Pause() {
	if !c.local {
		c.paused.Store(true)
		c.s.Handler().Pause()
	}
}

// Resume lets a connection go on that Pause, or Config.Diagnostics.Probe in the data phase, has
// stopped. Any goroutine; it does not wait.
func (c *Conn) Resume() {
	c.paused.Store(false)
	c.s.Handler().Resume()
}

// unhold lets a connection go on that an injected delay has stopped, but not one that is
// paused: that goes on with Resume.
func (c *Conn) unhold() {
	if c.paused.Load() {
		return
	}
	c.s.Handler().Resume()
	if c.paused.Load() {
		c.s.Handler().Pause() // which came at the same moment
	}
}
