package control

import "sync/atomic"

// chain are the dispatchers of a messenger.
type chain struct {
	list    []*Dispatcher // set by Start, then fixed
	self    Dispatcher    // runs the whole chain for the connection to ourselves
	dropped atomic.Uint64 // messages that no dispatcher took
}

// offer is the rule of the chain: the first whose Fast takes the message has it,
// else the first that has Queued, which is the result; the caller calls that. nil:
// somebody took it, or nobody ever will.
func (ch *chain) offer(c *Conn, msg *Message) (queued *Dispatcher) {
	for _, d := range ch.list {
		if d.Fast != nil && d.Fast(c, msg) {
			return nil
		}
	}
	for _, d := range ch.list {
		if d.Queued != nil {
			return d
		}
	}
	ch.dropped.Add(1)
	return nil
}

// dispatch gives a message to the call that waits for it, or to the chain, on the
// core of its connection.
func (m *Messenger) dispatch(c *Conn, msg *Message) {
	if c.line != nil && c.line.takes(c, msg) {
		return
	}
	if d := m.offer(c, msg); d != nil {
		msg.Retain()
		c.queue.push(m, c, d, msg)
	}
}

// offer gives a message to the call that waits for it, else to the chain.
func (m *Messenger) offer(c *Conn, msg *Message) (queued *Dispatcher) {
	if c.answered(msg) {
		return nil
	}
	return m.chain.offer(c, msg)
}

// dispatchLocal gives a message that we sent to ourselves to the chain, on the
// goroutine of the connection's queue. It takes over the sender's reference.
func (m *Messenger) dispatchLocal(c *Conn, msg *Message) {
	c.queue.push(m, c, &m.chain.self, msg)
}

// setSelf has the queue of a local connection run the whole chain.
func (ch *chain) setSelf() {
	ch.self.Queued = func(c *Conn, msg *Message) {
		if c.answeredLocal(msg) {
			return
		}
		if d := ch.offer(c, msg); d != nil {
			d.Queued(c, msg)
		}
	}
}
