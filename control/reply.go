package control

// Reply sends reply as the answer to request, a message that this connection has
// brought: it gives it the request's transaction id. Who owns reply, and the
// errors, are as for Send. Call it while request is dispatched, or retained.
func (c *Conn) Reply(request, reply *Message) error {
	reply.TID = request.TID
	return c.m.cfg.Requests.end(c, request.Context, c.Send(reply))
}

// Later returns what is needed to answer request after it has been released: a small
// value, which may be kept for any time. Call it while request is dispatched.
func (c *Conn) Later(request *Message) PendingReply {
	return PendingReply{conn: c, tid: request.TID, session: c.queue.session.Load(), context: request.Context}
}

// PendingReply is a reply that is due. Any goroutine may use it, a core's too. It
// holds no memory of the request, and may be dropped: the caller of the request has a
// deadline.
type PendingReply struct {
	conn    *Conn
	tid     uint64
	context any    // of the request
	session uint64 // of the connection: counts those that the peer has lost
}

// Conn is the connection that the request came on.
func (p PendingReply) Conn() *Conn { return p.conn }

// Send sends reply with the transaction id of the request, once: another one would
// come to the dispatchers of the peer. Who owns reply, and the errors, are as for
// Conn.Send; it fails with ErrSessionLost if the peer has lost its session since
// then, as nobody waits for the reply any more.
func (p PendingReply) Send(reply *Message) error {
	hooks := p.conn.m.cfg.Requests
	if p.conn.queue.session.Load() != p.session {
		return hooks.end(p.conn, p.context, ErrSessionLost)
	}
	reply.TID = p.tid
	return hooks.end(p.conn, p.context, p.conn.Send(reply))
}
