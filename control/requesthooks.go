package control

import "context"

// RequestHooks follow requests from the call to its end on one side, and from the
// dispatcher to the reply on the other: what a tracer such as that of OpenTelemetry
// needs to follow one across peers. What the peer has to know of it travels in the
// message: Middle is free for that where the programs on both sides agree on it. On the
// side that is asked a Dispatcher in front of the others, whose Fast returns false, reads
// it, and puts what it makes of it into Message.Context. A hook may run on a core: it
// must not block.
type RequestHooks struct {
	// Call is called before a request is sent: with the context of Conn.Call, or with the
	// background for Conn.Start, where Request.Context may have one. It may change the
	// message. What it returns, unless that is nil, is called once, when the call is over:
	// before Request.Done, or before Call or a Start that fails returns. The reply is
	// valid during the call.
	Call func(ctx context.Context, c *Conn, r *Request) (over func(reply *Message, err error))
	// Replied is called when Conn.Reply or PendingReply.Send has sent the reply to a
	// request, or has failed with err. requested is Message.Context of the request.
	Replied func(c *Conn, requested any, err error)
}

// begin tells of a request that is about to be sent.
func (h *RequestHooks) begin(ctx context.Context, c *Conn, r *Request) {
	if h != nil && h.Call != nil {
		r.over = h.Call(ctx, c, r)
	}
}

// ended tells of the end of a call.
func (r *Request) ended(reply *Message, err error) {
	if over := r.over; over != nil {
		r.over = nil
		over(reply, err)
	}
}

// end tells of a reply, and returns its error.
func (h *RequestHooks) end(c *Conn, requested any, err error) error {
	if h != nil && h.Replied != nil {
		h.Replied(c, requested, err)
	}
	return err
}
