package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/steplock"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// A request is a message with a transaction id (TID), and its reply is the message that comes
// back on the same connection with the same id. Call is for a goroutine that waits; Start is
// for many requests at once, whose replies come on the core. The other side is in reply.go.

var (
	// ErrNotSent: the connection, or the context of a waiting call, ended before a byte of the
	// request was written: the peer has not seen it. This error and the next two wrap their
	// reason, too.
	ErrNotSent = errors.New("control: request not sent")
	// ErrSessionLost: the request was sent, and its session is gone, by a reset, a remote reset
	// or the end of the connection. The peer may have carried the request out or not.
	ErrSessionLost = errors.New("control: session lost before the reply")
	// ErrRefused: no byte of the request was written, and the same call fails again: the
	// connection was over (ErrClosed), the request cannot be sent (ErrTooLarge, ErrTIDInUse,
	// ErrInUse, loop.ErrOnCore), or dialling again is of no use (ErrAuth, ErrWrongPeer,
	// ErrPeerType, ErrMissingFeatures).
	ErrRefused = errors.New("control: request refused")
	// ErrTooManyCalls: Config.Sending.Calls are under way on the connection.
	ErrTooManyCalls = errors.New("control: too many calls under way")
	// ErrTIDInUse: a call with this transaction id is under way on the connection.
	ErrTIDInUse = errors.New("control: a call with this transaction id is under way")

	// errForgotten ends the requests and postings of a session that the peer has lost. The last
	// failed attempt to dial is not the reason.
	errForgotten = fmt.Errorf("%w: the peer has no such session", ErrSessionLost)
)

// Call sends msg as a request and waits for the reply: the next message on the connection with
// the same transaction id. Call chooses a new id, unless WithTID sets it.
//
// Call takes over one reference to msg, also when it fails. The caller gets a reference to the
// reply, which counts against Config.Receiving.Bytes until Release.
//
// The error decides the next step of the caller:
//
//   - ErrNotSent: call again; on another connection if this one is over.
//   - ErrSessionLost: call again only if the peer may carry the request out twice.
//   - ErrRefused: change the request, or Connect; calling again is of no use.
//   - The cause of ctx: as for ErrSessionLost, unless it comes with ErrNotSent.
//
// Call waits on over a reconnect of a lossless session. If the peer has lost the session, an
// unwritten request goes on to the new one, and a written request fails. A peer that comes back
// without a reset (Policy.ResetCheck) can leave a call without an answer: ctx should have a
// deadline. When ctx ends Call returns at once, an unwritten request is withdrawn, and a later
// reply goes to the dispatchers. At the bounds of the queue and at Config.Sending.Calls Call
// waits for room.
//
// On a core it fails with loop.ErrOnCore.
func (c *Conn) Call(ctx context.Context, msg *Message, opts ...CallOption) (*Message, error) {
	w := &waitingCall{done: make(chan callResult, 1)}
	w.Message, w.Done, w.waiting = msg, (*Request).deliver, w
	for _, f := range opts {
		f(&w.Request)
	}
	c.m.cfg.Diagnostics.Requests.begin(ctx, c, &w.Request)
	if err := w.start(ctx, c); err != nil {
		w.ended(nil, err)
		msg.Release()
		return nil, err
	}
	select {
	case res := <-w.done:
		return res.take()
	case <-ctx.Done():
		if len(w.Buffer) > 0 { // the caller gets it back: wait for the core
			w.Cancel()
			res := <-w.done
			if errors.Is(res.err, context.Canceled) {
				res.err = c.endOf(ctx)
			}
			return res.take()
		}
		if w.claim() {
			w.Cancel()
			err := c.endOf(ctx)
			w.ended(nil, err)
			return nil, err
		}
		res := <-w.done // it came just before
		return res.take()
	}
}

// endOf is the cause of ctx. It adds that the connection is throttled, as the reply may wait in
// its socket.
func (c *Conn) endOf(ctx context.Context) error {
	if n, long := c.s.Unreleased(); n > 0 {
		return fmt.Errorf("%w: the connection is throttled for %v, as %d bytes of received messages are not released",
			context.Cause(ctx), long.Round(time.Millisecond), n)
	}
	return context.Cause(ctx)
}

// CallOption changes one Call.
type CallOption func(*Request)

// WithTID sets the transaction id, for protocols that know a repeated request by it. 0: Call
// chooses. It fails with ErrTIDInUse while another call has the id.
func WithTID(tid uint64) CallOption { return func(r *Request) { r.TID = tid } }

// Request is one call of Conn.Start. It may be used again once Done has run, and must not be
// copied.
type Request struct {
	// Message is the request. Start sets its transaction id, and takes over one reference to
	// it. It must not be sent elsewhere before Done has run.
	Message *Message
	// TID is the transaction id; 0: Start chooses a new one.
	TID uint64
	// Buffer, if not empty, is memory for the data of the reply, as a Posting has it: it
	// belongs to the messenger from Start until Done runs. Message.Posted reports whether the
	// reply has it; a reply without data, or with too much, has not, nor a reply to ourselves.
	Buffer []byte
	// Done is called once for each successful Start, on the core that owns the connection; for
	// the connection to ourselves on its goroutine, or on a core: with the reply, which is valid
	// during the call unless it is retained, or with an error of Call, or context.Canceled after
	// Cancel. It must not block, and may start the request again.
	Done func(r *Request, reply *Message, err error)
	// Context is the user's own.
	Context any

	conn    *Conn
	waiting *waitingCall                    // that it is part of; nil: the user's
	over    func(reply *Message, err error) // of RequestHooks.Call; called at the end of the call
	state   atomic.Uint64                   // counts starts and ends: odd while the call is under way

	// Owner: the core of conn, from Start on; on the connection to ourselves the
	// lock of its calls.
	next      *Request // in the same bucket
	tid       uint64
	taken     bool              // it is among the calls
	queued    bool              // the message is in the sending queue
	sent      bool              // the message was written, or another process may write it
	posted    dataplane.Posting // of Buffer; without an id: not posted
	delivered bool              // to ourselves: the message has come to the dispatchers
}

// Start sends a request and does not wait: Done gets the reply. It allocates no memory. If it
// fails Done is not called, and the caller keeps the message: the errors are those of Send,
// ErrTooManyCalls, and ErrInUse for a request under way.
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
	err := c.calls.enter(c.m.cfg.Sending.Calls)
	if err == nil {
		r.conn, r.next, r.taken, r.queued, r.sent, r.delivered = c, nil, false, false, c.local, false
		if r.waiting == nil {
			c.m.cfg.Diagnostics.Requests.begin(context.Background(), c, r)
		}
		switch {
		case c.draining.Load(): // since then, and Drain may not have waited for this call
			err = ErrClosed
		case c.local:
			err = r.startLocal()
		default:
			err = c.sendError(c.s.Handler().SendTracked(r.Message, (*trackedRequest)(r)))
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

// Cancel ends a call under way: Done gets context.Canceled, unless its reply comes first. An
// unwritten message is withdrawn. Any goroutine, but not at the same time as Start.
func (r *Request) Cancel() {
	s := r.state.Load()
	if s&1 == 0 {
		return
	}
	c := r.conn
	c.s.Handler().Do(func(*loop.Core) {
		if r.state.Load() == s && r.drop() {
			r.finish(nil, context.Canceled)
		}
	})
}

// trackedRequest is a request with its message in the sending queue.
type trackedRequest Request

// Taken implements dataplane.Tracker.
func (t *trackedRequest) Taken() {
	r := (*Request)(t)
	c := r.conn
	r.taken, r.queued = true, true
	c.calls.name(r, &c.m.lastTID)
	if !c.calls.table.add(r) {
		c.s.Handler().Withdraw(r.Message)
		r.finish(nil, fmt.Errorf("%w: %w: %d", ErrRefused, ErrTIDInUse, r.tid))
	}
}

// Left implements dataplane.Tracker.
func (t *trackedRequest) Left(o dataplane.Outcome) {
	r := (*Request)(t)
	r.queued, r.sent = false, o != dataplane.OutcomeDropped
	switch {
	case !r.taken: // the connection had ended before
		r.finish(nil, r.lostError())
	case r.sent:
		r.postBuffer() // an earlier message cannot be the reply
	}
}

// lostError is the error of a request after the loss of its session.
func (r *Request) lostError() error {
	switch err := r.conn.Err(); {
	case r.sent:
		return r.conn.lostError(ErrSessionLost)
	case errors.Is(err, ErrElsewhere): // a wrong peer, but the next Connect dials another one
	case errors.Is(err, ErrAuth), errors.Is(err, ErrWrongPeer), errors.Is(err, ErrPeerType), errors.Is(err, ErrMissingFeatures):
		return r.conn.lostError(ErrRefused)
	}
	return r.conn.lostError(ErrNotSent)
}

// start is Start, but it waits for room.
func (w *waitingCall) start(ctx context.Context, c *Conn) error {
	if c.m.plane.OnCore() {
		return fmt.Errorf("%w: %w", ErrRefused, loop.ErrOnCore)
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	err := c.Start(&w.Request)
	for w.mustWait(err, c) {
		sendable, room := c.s.Handler().Room(), c.calls.room()
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
			return fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx))
		}
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// mustWait says that Start failed with err because there is no room now.
func (w *waitingCall) mustWait(err error, c *Conn) bool {
	return errors.Is(err, ErrTooManyCalls) || c.mayWait(err)
}

// lose ends all calls of c, in the order of their ids: the session is gone. If the connection
// goes on, requests that were not sent go on, too. On the core.
func (k *calls) lose(c *Conn, goesOn bool) {
	k.lock.Lock()
	all := k.table.all()
	k.lock.Unlock()
	for _, r := range all {
		if (!goesOn || r.sent) && r.drop() {
			err := r.lostError()
			if goesOn {
				err = errForgotten
			}
			r.finish(nil, err)
		}
	}
}

// calls are the calls under way on one connection.
type calls struct {
	n atomic.Int64 // under way, including calls that the core has not seen yet

	waiting atomic.Bool // somebody waits for n to fall
	mu      sync.Mutex
	free    chan struct{} // closed when n has fallen; guarded by mu

	// Owner: the core of the connection; on the connection to ourselves the lock.
	lock      sync.Mutex
	table     callTable
	next, end uint64 // transaction ids to give out: after next, up to end
}

// enter counts one call more, or says that there are more than limit; 0: no limit.
func (k *calls) enter(limit int) error {
	for {
		n := k.n.Load()
		if limit > 0 && n >= int64(limit) {
			return ErrTooManyCalls
		}
		if k.n.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (k *calls) leave() {
	k.n.Add(-1)
	if k.waiting.Load() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.free != nil {
			close(k.free)
			k.free = nil
		}
		k.waiting.Store(false)
	}
}

// room returns a channel that closes once a call has ended.
func (k *calls) room() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.free == nil {
		k.free = make(chan struct{})
	}
	k.waiting.Store(true)
	return k.free
}

// tidBlock is the number of transaction ids that a connection takes at once from the
// messenger, so that connections do not share a counter for each call.
const tidBlock = 1 << 10

// name gives a request its transaction id; last is the last one that the connections of
// the messenger have taken. The ids of a messenger begin at a random number, so that they
// differ from those that its peers give to their own requests.
func (k *calls) name(r *Request, last *atomic.Uint64) {
	for r.tid = r.TID; r.tid == 0 || r.TID == 0 && k.table.get(r.tid) != nil; r.tid = k.next {
		if k.next == k.end {
			k.end = last.Add(tidBlock)
			k.next = k.end - tidBlock
		}
		k.next++
	}
	r.Message.TID = r.tid
}

// answered gives a message to the call that waits for it. On the core.
func (k *calls) answered(m *Message) bool {
	r := k.table.get(m.TID)
	if r == nil || !r.sent { // a request that was not sent has no answer
		return false
	}
	k.table.remove(r)
	return r.finish(m, nil)
}

// drop takes a call out of the table, if it is there, and its message out of the queue if it is
// there still. On the core.
func (r *Request) drop() bool {
	switch {
	case r.conn.local:
		return r.conn.calls.takeLocal(r)
	case !r.taken:
		return false
	}
	r.conn.calls.table.remove(r)
	if r.queued {
		r.conn.s.Handler().Withdraw(r.Message)
	}
	return true
}

// finish ends a call that is not in the table any more. It returns false if its caller has
// given up.
func (r *Request) finish(reply *Message, err error) bool {
	r.taken = false
	r.freeBuffer()
	done, w := r.Done, r.waiting
	r.conn.calls.leave()
	r.state.Add(1)
	if w != nil && !w.claim() {
		return false
	}
	r.ended(reply, err)
	done(r, reply, err)
	return true
}

// postedByRequest is a request with a posted buffer.
type postedByRequest Request

// Used implements dataplane.PostingUser: the reply ends the request.
func (*postedByRequest) Used() {}

// postBuffer posts the buffer of a request that is written and waits for its reply. A
// Posting with the same id goes before it. On the core.
func (r *Request) postBuffer() {
	c := r.conn
	if len(r.Buffer) == 0 || c.calls.table.get(r.tid) != r {
		return
	}
	r.posted = dataplane.Posting{TID: r.tid, Buffer: r.Buffer, User: (*postedByRequest)(r)}
	_ = c.s.Handler().AddPosting(&r.posted) // the reply comes into memory of ours then
}

// freeBuffer takes the buffer of a request back, before Done. On the core.
func (r *Request) freeBuffer() {
	if r.posted.TID != 0 {
		h := r.conn.s.Handler()
		h.RemovePosting(h.Core(), &r.posted)
		r.posted = dataplane.Posting{}
	}
}

// waitingCall is a Call.
type waitingCall struct {
	Request
	claimed atomic.Bool // its outcome is decided: by the core, or by its caller, who stops waiting
	done    chan callResult
}

type callResult struct {
	reply *Message
	err   error
}

// take has builds that record the holders of messages (package invariants) name the caller of
// Call rather than its core.
func (res callResult) take() (*Message, error) {
	if steplock.Enabled && res.reply != nil {
		res.reply.Retain()
		res.reply.Release()
	}
	return res.reply, res.err
}

// claim decides the outcome; false if it is decided.
func (w *waitingCall) claim() bool { return w.claimed.CompareAndSwap(false, true) }

// deliver is Done of a Call.
func (r *Request) deliver(reply *Message, err error) {
	if reply != nil {
		reply.Retain()
	}
	r.waiting.done <- callResult{reply, err}
}

// Calls on the connection to ourselves. It has no core that could own them, so a lock
// guards them; it is free while dispatchers and Done run. The request and
// its reply come to the dispatchers on the same connection: the first message with
// the transaction id behind the request is the reply.

func (r *Request) startLocal() error {
	c := r.conn
	k := &c.calls
	k.lock.Lock() // also while it is sent, so that nobody else ends it meanwhile
	defer k.lock.Unlock()
	k.name(r, &c.m.lastTID)
	if r.taken = k.table.add(r); !r.taken {
		return ErrTIDInUse
	}
	err := c.sendLocal(r.Message)
	if err != nil {
		k.table.remove(r)
		r.taken = false
	}
	return err
}

// takeLocal takes a call out of the table, if it is there.
func (k *calls) takeLocal(r *Request) bool {
	k.lock.Lock()
	defer k.lock.Unlock()
	if !r.taken {
		return false
	}
	k.table.remove(r)
	r.taken = false
	return true
}

// answeredLocal gives a message to the call that waits for it.
func (k *calls) answeredLocal(m *Message) bool {
	k.lock.Lock()
	r := k.table.get(m.TID)
	switch {
	case r == nil:
		k.lock.Unlock()
		return false
	case !r.delivered:
		r.delivered = m == r.Message // another one with its id is of an earlier call
		k.lock.Unlock()
		return false
	}
	k.table.remove(r)
	r.taken = false
	k.lock.Unlock()
	return r.finish(m, nil)
}
