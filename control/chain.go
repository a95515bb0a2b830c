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

// offer gives a message to the call that waits for it, else to the chain.
func (m *Messenger) offer(c *Conn, msg *Message) (queued *Dispatcher) {
	if c.calls.answered(msg) {
		return nil
	}
	return m.chain.offer(c, msg)
}

// setSelf has the queue of a local connection run the whole chain.
func (ch *chain) setSelf() {
	ch.self.Queued = func(c *Conn, msg *Message) {
		if c.calls.answeredLocal(msg) {
			return
		}
		if d := ch.offer(c, msg); d != nil {
			d.Queued(c, msg)
		}
	}
}
