package control

import "context"

// Calls on the connection to ourselves. It has no core that could own them, so a lock
// guards them; it is free while dispatchers and Done run. The request and
// its reply come to the dispatchers on the same connection: the first message with
// the transaction id is the request.

func (r *Request) startLocal() error {
	c := r.conn
	k := &c.calls
	k.lock.Lock()
	k.name(r, &c.m.lastTID)
	if r.taken = k.table.add(r); !r.taken {
		k.lock.Unlock()
		return ErrTIDInUse
	}
	k.lock.Unlock()
	err := c.sendLocal(r.Message)
	if err != nil && !k.takeLocal(r) {
		return nil // Done has heard of the end of the connection
	}
	return err
}

// takeLocal takes a call out of the table. It says whether that was still to be done.
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

func (r *Request) cancelLocal(state uint64) {
	if r.state.Load() == state && r.conn.calls.takeLocal(r) {
		r.finish(nil, context.Canceled)
	}
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
		r.delivered = true
		k.lock.Unlock()
		return false
	}
	k.table.remove(r)
	r.taken = false
	k.lock.Unlock()
	return r.finish(m, nil)
}

// loseLocal is lose for the connection to ourselves.
func (k *calls) loseLocal(c *Conn) {
	k.lock.Lock()
	all := k.table.all()
	k.lock.Unlock()
	for _, r := range all {
		if k.takeLocal(r) {
			r.finish(nil, c.lostError())
		}
	}
}
