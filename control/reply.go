package control

import (
	"context"
	"errors"
)

// Reply sends reply as the answer to request, a message of this connection: it sets the
// request's transaction id. The ownership of reply and the errors are those of Send. Call it
// while request is dispatched, or retained.
func (c *Conn) Reply(request, reply *Message) error {
	reply.TID = request.TID
	return c.m.cfg.Diagnostics.Requests.end(c, request.Context, c.Send(reply))
}

// Later returns a PendingReply, by which request can be answered after its release: a small
// value, which may be kept for any time, and for which Drain waits. Call it while request is
// dispatched.
func (c *Conn) Later(request *Message) PendingReply {
	c.due.Add(1)
	return PendingReply{conn: c, tid: request.TID, session: c.queue.session.Load(), context: request.Context}
}

// PendingReply is a reply that is due. Any goroutine may use it, a core's too. It holds no
// memory of the request. Without an answer call Send(nil): the caller of the request has a
// deadline, but Drain would wait until its own.
type PendingReply struct {
	conn    *Conn
	tid     uint64
	context any    // of the request
	session uint64 // of the connection: counts those that the peer has lost
}

// Conn is the connection that the request came on.
func (p PendingReply) Conn() *Conn { return p.conn }

// Send sends reply with the transaction id of the request, once: a second one would come to
// the dispatchers of the peer. The ownership of reply and the errors are those of Conn.Send;
// it fails with ErrSessionLost if the peer has lost its session since then, as no call waits
// for the reply any more. After ErrQueueFull, and no other error, the reply is still due.
func (p PendingReply) Send(reply *Message) (err error) {
	c := p.conn
	switch {
	case reply == nil:
	case c.queue.session.Load() != p.session:
		err = ErrSessionLost
	default:
		reply.TID = p.tid
		err = c.Send(reply)
	}
	if !errors.Is(err, ErrQueueFull) {
		c.due.Add(-1)
	}
	return c.m.cfg.Diagnostics.Requests.end(c, p.context, err)
}

// RequestHooks follow requests from the call to its end on one side, and from the dispatcher to
// the reply on the other, for a tracer such as OpenTelemetry's. The context of a trace travels
// in the message: Middle is free for it if the programs on both sides agree. On the side that
// answers, a first Dispatcher, whose Fast returns false, reads it and sets Message.Context. A
// hook may run on a core: it must not block.
type RequestHooks struct {
	// Call is called before a request is sent: with the context of Conn.Call, or with the
	// background for Conn.Start, where Request.Context may have one. It may change the
	// message. The returned function, unless it is nil, is called once at the end of the
	// call: before Request.Done, or before Call or a failing Start returns. The reply is
	// valid during that call.
	Call func(ctx context.Context, c *Conn, r *Request) (over func(reply *Message, err error))
	// Replied is called when Conn.Reply or PendingReply.Send has sent the reply to a
	// request, or has failed with err; with nil, too, when the reply was given up by
	// Send(nil). requested is Message.Context of the request.
	Replied func(c *Conn, requested any, err error)
}

// begin calls the hook for a request that is about to be sent.
func (h *RequestHooks) begin(ctx context.Context, c *Conn, r *Request) {
	if h != nil && h.Call != nil {
		r.over = h.Call(ctx, c, r)
	}
}

// ended calls the hook at the end of a call.
func (r *Request) ended(reply *Message, err error) {
	if over := r.over; over != nil {
		r.over = nil
		over(reply, err)
	}
}

// end calls the hook for a reply, and returns its error.
func (h *RequestHooks) end(c *Conn, requested any, err error) error {
	if h != nil && h.Replied != nil {
		h.Replied(c, requested, err)
	}
	return err
}
