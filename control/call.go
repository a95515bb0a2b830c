package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// A request is a message with a transaction id (TID), and its reply is the message
// that comes back on the same connection with the same one. Call is for a goroutine
// that waits; Start is the form for many requests at once, whose replies are taken
// on the core. The other side is in reply.go.

var (
	// ErrSessionLost: the session that carried a request is gone, by a reset, a
	// remote reset or the end of the connection. Nobody knows whether the peer has
	// carried the request out. The error of the connection is wrapped beside it.
	ErrSessionLost = errors.New("control: session lost before the reply")
	// ErrTooManyCalls: Config.MaxCalls are under way on the connection.
	ErrTooManyCalls = errors.New("control: too many calls under way")
	// ErrTIDInUse: a call with this transaction id is under way on the connection.
	ErrTIDInUse = errors.New("control: a call with this transaction id is under way")
)

// Call sends msg as a request and waits for the reply: the next message on the
// connection with the transaction id that Call gives to msg. The id differs from
// all others of this messenger, over reconnects too, unless WithTID says which one
// it is.
//
// Call takes over one reference to msg, also when it fails. The caller gets one to
// the reply, which counts against Config.DispatchBytes until Release.
//
// When ctx ends Call returns its cause at once, a request that was not written yet
// is withdrawn, and a reply that comes later goes to the dispatchers, as does all
// that nobody waits for. It fails with ErrSessionLost when the session is lost: a
// lossless session that reconnects is not. A peer that lost its session and may
// come back without a reset (Policy.ResetCheck) can leave a call without an answer:
// ctx should have a deadline. At the bounds of the queue and at Config.MaxCalls Call
// waits for room, as SendContext does. Other errors are those of Send.
//
// Any goroutine but a core's: there it fails at once with ErrOnCore.
func (c *Conn) Call(ctx context.Context, msg *Message, opts ...CallOption) (*Message, error) {
	w := &waitingCall{done: make(chan callResult, 1)}
	w.Message, w.Done, w.waiting = msg, (*Request).deliver, w
	for _, f := range opts {
		f(&w.Request)
	}
	c.m.cfg.Requests.begin(ctx, c, &w.Request)
	if err := w.start(ctx, c); err != nil {
		w.ended(nil, err)
		msg.Release()
		return nil, err
	}
	select {
	case res := <-w.done:
		return res.reply, res.err
	case <-ctx.Done():
		if len(w.Buffer) > 0 { // the caller gets it back: wait for the core
			w.Cancel()
			res := <-w.done
			if errors.Is(res.err, context.Canceled) {
				res.err = context.Cause(ctx)
			}
			return res.reply, res.err
		}
		if w.claim() {
			w.Cancel()
			w.ended(nil, context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
		res := <-w.done // it came just before
		return res.reply, res.err
	}
}

// CallOption changes one Call.
type CallOption func(*Request)

// WithTID has the request go out with this transaction id, for protocols that know
// a request by it when it is sent again. 0 stands for one that Call chooses. It
// fails with ErrTIDInUse while another call with it is under way.
func WithTID(tid uint64) CallOption { return func(r *Request) { r.TID = tid } }

// Request is one call of the form that does not wait (Conn.Start). It is made by
// the user, and may be used again once Done has run; it must not be copied.
type Request struct {
	// Message is what is sent. Start gives it its transaction id, and takes over one
	// reference to it. It must not be sent elsewhere before Done has run.
	Message *Message
	// TID is the transaction id to use; 0: one that differs from all others of this
	// messenger, chosen anew with each Start.
	TID uint64
	// Buffer, if not empty, is memory for the data of the reply, as a Posting has it: it
	// belongs to the messenger from Start on, and is the user's again when Done runs, in
	// whatever way the request has ended. Message.Posted says whether the reply has it; a
	// reply without data, or with too much, has not, nor one to a request to ourselves.
	Buffer []byte
	// Done is called once for each Start that has succeeded, on the core that owns
	// the connection: with the reply, which is valid during the call unless it is
	// retained, or with the reason why there is none: ErrSessionLost,
	// context.Canceled after Cancel, ErrTIDInUse. It must not block, like
	// Dispatcher.Fast, and may start the request again. On the connection to
	// ourselves it runs on the goroutine of that connection.
	Done func(r *Request, reply *Message, err error)
	// Context is the user's own.
	Context any

	conn    *Conn
	waiting *waitingCall                    // that it is part of; nil: the user's
	over    func(reply *Message, err error) // of RequestHooks.Call; whoever ends the call calls it
	state   atomic.Uint64                   // counts starts and ends: odd while the call is under way

	// Owner: the core of conn, from Start on; on the connection to ourselves the
	// lock of its calls.
	next      *Request // in the same bucket
	tid       uint64
	taken     bool              // it is among the calls
	queued    bool              // and the message was not written yet
	posted    dataplane.Posting // of Buffer; without an id: not posted
	delivered bool              // to ourselves: the message has come to the dispatchers
}

// Start sends a request without waiting for the reply, which Done gets. It allocates
// nothing. On an error Done is not called, and the reference to the message stays
// with the caller: those of Send, ErrTooManyCalls, and ErrInUse for a request that is
// under way. Any goroutine, a dispatcher's on a core too.
func (c *Conn) Start(r *Request) error {
	if r.Message == nil || r.Done == nil {
		return fmt.Errorf("%w: a request needs Message and Done", ErrConfig)
	}
	if c.draining.Load() {
		return ErrClosed
	}
	s := r.state.Load()
	if s&1 != 0 || !r.state.CompareAndSwap(s, s+1) {
		return ErrInUse
	}
	err := c.calls.enter()
	if err == nil {
		r.conn, r.next, r.taken, r.queued, r.delivered = c, nil, false, false, false
		if r.waiting == nil {
			c.m.cfg.Requests.begin(context.Background(), c, r)
		}
		if c.local {
			err = r.startLocal()
		} else {
			err = c.sendError(c.h.SendTracked(r.Message, (*trackedRequest)(r)))
		}
		if err != nil {
			c.calls.leave()
			if r.waiting == nil {
				r.ended(nil, err)
			}
		}
	}
	if err != nil {
		r.state.Add(1)
	}
	return err
}

// Cancel ends a call that is under way: Done gets context.Canceled, unless its reply
// comes first. A message that was not written yet is withdrawn. It does nothing for
// one that is over. Any goroutine, but not at the same time as Start.
func (r *Request) Cancel() {
	s := r.state.Load()
	if s&1 == 0 {
		return
	}
	c := r.conn
	if c.local {
		r.cancelLocal(s)
		return
	}
	c.h.Do(func(*dataplane.Core) {
		if r.state.Load() == s && r.taken {
			r.drop()
			r.finish(nil, context.Canceled)
		}
	})
}

// trackedRequest is a request whose message is in the sending queue.
type trackedRequest Request

// Taken implements dataplane.Tracker.
func (t *trackedRequest) Taken() {
	r := (*Request)(t)
	c := r.conn
	r.queued = true
	c.calls.name(r, &c.m.lastTID)
	if c.calls.table.add(r) {
		r.taken = true
		return
	}
	r.taken = true
	c.h.Withdraw(r.Message)
	r.finish(nil, fmt.Errorf("%w: %d", ErrTIDInUse, r.tid))
}

// Left implements dataplane.Tracker.
func (t *trackedRequest) Left() {
	r := (*Request)(t)
	r.queued = false
	if !r.taken { // the connection was closed when it came
		r.finish(nil, r.conn.lostError())
		return
	}
	r.postBuffer() // what comes before can not be the reply
}

// start is Start, but it waits for room.
func (w *waitingCall) start(ctx context.Context, c *Conn) error {
	if c.m.plane.OnCore() {
		return ErrOnCore
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	err := c.Start(&w.Request)
	for w.mustWait(err, c) {
		sendable, room := c.h.Room(), c.calls.room()
		if err = c.Start(&w.Request); !w.mustWait(err, c) {
			break
		}
		if errors.Is(err, ErrTooManyCalls) {
			sendable = nil
		} else {
			room = nil
		}
		select {
		case <-sendable:
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// mustWait says that Start failed with err because there is no room now.
func (w *waitingCall) mustWait(err error, c *Conn) bool {
	return errors.Is(err, ErrTooManyCalls) || errors.Is(err, ErrQueueFull) || errors.Is(err, ErrHandedOver) && !c.handed.Load()
}

// lose ends all calls of c, in the order of their ids: the session is gone. On the
// core.
func (k *calls) lose(c *Conn) {
	if c.local {
		k.loseLocal(c)
		return
	}
	if k.table.n == 0 {
		return
	}
	err := c.lostError()
	for _, r := range k.table.all() {
		if r.taken {
			r.drop()
			r.finish(nil, err)
		}
	}
}
