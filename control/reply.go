package control

import (
	"context"
	"sync/atomic"
)

// Reply sends reply as the answer to request, a message of this connection, with its
// transaction id. Ownership and errors are those of Send. Call it while request is dispatched,
// or retained.
func (c *Conn) Reply(request, reply *Message) error {
	reply.TID = request.TID
	return c.m.cfg.Diagnostics.Requests.end(c, request.Context, c.Send(reply))
}

// Later returns a PendingReply, which answers request after its release, at any time. Drain
// waits for it, and HandOver for 2 s. Call it while request is dispatched.
func (c *Conn) Later(request *Message) PendingReply {
	due := c.due.Load()
	due.Add(1)
	return PendingReply{conn: c, tid: request.TID, due: due, context: request.Context}
}

// PendingReply is a reply that is due, a small value without memory of the request. Any
// goroutine, a core's too. If there is no answer call Send(nil), as Drain waits for it.
type PendingReply struct {
	conn    *Conn
	tid     uint64
	context any           // of the request
	due     *atomic.Int64 // Conn.due at that time
}

// Conn is the connection of the request.
func (p PendingReply) Conn() *Conn { return p.conn }

// Send sends reply with the transaction id of the request. Call it once: after an error, too, the
// reply is not due any more. Ownership and errors are those of Conn.Send; after the peer has lost
// its session it fails with ErrSessionLost. After ErrQueueFull, which says that the peer does not
// take its replies, the call has no answer. To wait for room instead, set Message.TID to that of
// the request, call Conn.SendContext on a goroutine, and then Send(nil).
func (p PendingReply) Send(reply *Message) (err error) {
	c := p.conn
	switch {
	case reply == nil:
	case c.due.Load() != p.due:
		err = errForgotten
	default:
		reply.TID = p.tid
		err = c.Send(reply)
	}
	p.due.Add(-1)
	return c.m.cfg.Diagnostics.Requests.end(c, p.context, err)
}

// RequestHooks follow requests from the call to its end on one side, and from the dispatcher to
// the reply on the other, for a tracer, for example OpenTelemetry's. The context of a trace
// travels in the message, for example in Middle; on the answering side a first Dispatcher,
// whose Fast returns false, reads it and sets Message.Context. A hook may run on a core: it
// must not block.
type RequestHooks struct {
	// Call is called before a request is sent, with the context of Conn.Call, or the background
	// for Conn.Start. It may change the message. The returned function, if any, is called once
	// at the end of the call: before Request.Done, or before Call or a failing Start returns.
	// The reply is valid during that call.
	Call func(ctx context.Context, c *Conn, r *Request) (over func(reply *Message, err error))
	// Replied is called after Conn.Reply or PendingReply.Send, with its error; after Send(nil)
	// with nil. requested is Message.Context of the request.
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
