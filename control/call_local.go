package control

import "context"

// Calls on the connection to ourselves. It has no core that could own them, so a lock
// guards them; it is free while dispatchers and Done run. The request and
// its reply come to the dispatchers on the same connection: the first message with
// the transaction id is the request. call.go comes here for that connection, and a
// call ends as there, so calls between the two files run both ways.

func (c *Conn) startLocal(r *Request) error {
	k := &c.calls
	k.lock.Lock()
	c.nameCall(r)
	if r.taken = k.table.add(r); !r.taken {
		k.lock.Unlock()
		return ErrTIDInUse
	}
	k.lock.Unlock()
	err := c.sendLocal(r.Message)
	if err != nil && !c.takeLocal(r) {
		return nil // Done has heard of the end of the connection
	}
	return err
}

// takeLocal takes a call out of the table. It says whether that was still to be done.
func (c *Conn) takeLocal(r *Request) bool {
	k := &c.calls
	k.lock.Lock()
	defer k.lock.Unlock()
	if !r.taken {
		return false
	}
	k.table.remove(r)
	r.taken = false
	return true
}

func (c *Conn) cancelLocal(r *Request, state uint64) {
	if r.state.Load() == state && c.takeLocal(r) {
		c.finish(r, nil, context.Canceled)
	}
}

// answeredLocal gives a message to the call that waits for it.
func (c *Conn) answeredLocal(m *Message) bool {
	k := &c.calls
	k.lock.Lock()
	r := k.table.get(m.TID)
	switch {
	case r == nil:
		k.lock.Unlock()
		return false
	case !r.delivered:
		r.delivered = true
		k.lock.Unlock()
		return false
	}
	k.table.remove(r)
	r.taken = false
	k.lock.Unlock()
	return c.finish(r, m, nil)
}

func (c *Conn) loseLocalCalls() {
	k := &c.calls
	k.lock.Lock()
	all := k.table.all()
	k.lock.Unlock()
	for _, r := range all {
		if c.takeLocal(r) {
			c.finish(r, nil, c.lostError())
		}
	}
}
