package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// room bounds the calls that are under way. A call that finds room takes and returns it by one atomic word,
// without a lock.
type room struct {
	operations int
	bytes      int64
	used       atomic.Uint64 // operations, then bytes in the lower bits; and whether a call is in line

	mu   sync.Mutex
	line machine.Line // of the operations of calls
	lets bool         // a goroutine lets calls in
}

// The parts of room.used.
const (
	waiting = 1 << 63
	opsAt   = 40
)

// charge is how much of the room a call takes while it is under way: for what it sends, and the memory for
// what it reads.
func (c *Call) charge() {
	n := int64(len(c.Into))
	for i := range c.Request.Ops {
		op := &c.Request.Ops[i]
		n += int64(len(op.Data))
		if op.Code == osdop.CodeRead && len(c.Into) == 0 {
			n += int64(min(le.Uint64(op.Args[8:]), osdop.MaxData))
		}
	}
	c.cost = 1<<opsAt + uint64(min(n, 1<<(opsAt-1)))
}

// enter takes the room of a call, if there is enough. Calls in line go before all others: only letIn passes
// them.
func (r *room) enter(cost uint64, lets bool) bool {
	for {
		u := r.used.Load()
		ops, bytes := u&^waiting>>opsAt, u&(1<<opsAt-1)
		full := int(ops) >= r.operations || int64(bytes+cost&(1<<opsAt-1)) > r.bytes
		if u&waiting != 0 && !lets || ops > 0 && full {
			return false
		}
		if r.used.CompareAndSwap(u, u+cost) {
			return true
		}
	}
}

// leave returns the room of a call, and lets in the calls that wait for room.
func (e *Engine) leave(c *Call) {
	if e.room.used.Add(-c.cost)&waiting != 0 {
		e.letIn()
	}
}

// letIn submits calls that wait in line, as far as there is room. One goroutine at a time does, so that they
// keep their order.
func (e *Engine) letIn() {
	r := &e.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lets {
		return // that goroutine looks again
	}
	r.lets = true
	for o := r.line.First(); o != nil && r.enter(o.User.(*Call).cost, true); o = r.line.First() {
		c := o.User.(*Call)
		r.dismissLocked(c)
		r.mu.Unlock()
		c.entered = true
		e.submit(c)
		r.mu.Lock()
	}
	if r.lets = false; r.line.First() == nil {
		r.used.And(^uint64(waiting))
	}
}

// dismissLocked takes a call out of the line.
func (r *room) dismissLocked(c *Call) {
	r.line.Remove(&c.op)
	if c.inLine = false; c.admitted != nil {
		close(c.admitted)
		c.admitted = nil
	}
}

// stand puts a call into the line. If wait is set the channel is closed when it is out of it.
func (e *Engine) stand(c *Call, wait bool) (admitted chan struct{}) {
	if wait {
		admitted = make(chan struct{})
	}
	r := &e.room
	c.home.Store(nil) // that of its last use
	r.mu.Lock()
	c.inLine, c.admitted = true, admitted
	r.line.Push(&c.op)
	r.used.Or(waiting)
	r.mu.Unlock()
	if e.letIn(); e.over.Load() {
		e.clear(func(*Call) error { return ErrClosed })
	}
	return admitted
}

// clear ends the calls in line for which why returns an error.
func (e *Engine) clear(why func(c *Call) error) {
	var out machine.Line
	e.room.mu.Lock()
	for o := e.room.line.First(); o != nil; {
		c, next := o.User.(*Call), o.Next()
		if err := why(c); err != nil {
			e.room.dismissLocked(c)
			c.Err = e.lineError(c, err)
			out.Push(o)
		}
		o = next
	}
	e.room.mu.Unlock()
	if out.First() != nil {
		e.letIn()
		conclude(&out)
	}
}

// takeOut takes a call out of the line, if it stands there and the channel is its own; nil: any channel.
func (r *room) takeOut(c *Call, admitted <-chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.inLine || admitted != nil && c.admitted != admitted {
		return false
	}
	r.dismissLocked(c)
	return true
}

func (e *Engine) lineError(c *Call, err error) *Error {
	x := c.error(e, err)
	x.Waiting, x.For = "too many operations, or bytes of them, were under way", e.now().Sub(c.since)
	return x
}

// admittedIn waits until a call that Start has put into the line is under way.
func (e *Engine) admittedIn(ctx context.Context, c *Call, admitted <-chan struct{}) error {
	select {
	case <-admitted:
		return nil
	case <-ctx.Done():
	}
	if !e.room.takeOut(c, admitted) {
		return nil // it was let in just before
	}
	e.letIn()
	c.busy.Store(false)
	return e.lineError(c, context.Cause(ctx))
}
