package engine

import (
	"context"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// line are calls in their order, linked through themselves. Owner: Engine.mu.
type line struct{ first, last *Call }

func (l *line) push(c *Call) {
	c.prev, c.next = l.last, nil
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
}

func (l *line) remove(c *Call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.prev, c.next = nil, nil
}

// cost is how many bytes a call holds while it is under way: what it sends, and the memory for what it reads.
func (c *Call) charge() {
	n := int64(len(c.Into))
	for i := range c.Request.Ops {
		op := &c.Request.Ops[i]
		n += int64(len(op.Data))
		if op.Code == osdop.CodeRead && len(c.Into) == 0 {
			n += int64(min(le.Uint64(op.Args[8:]), osdop.MaxData))
		}
	}
	c.cost = n
}

// roomLocked says whether a call may be under way now.
func (e *Engine) roomLocked(c *Call) bool {
	return e.ops == 0 || e.ops < e.cfg.Operations && e.bytes+c.cost <= e.cfg.Bytes
}

// enterLocked submits a call, or has it wait in line.
func (e *Engine) enterLocked(c *Call) {
	c.since = e.now
	if e.line.first != nil || !e.roomLocked(c) {
		c.state = inLine
		e.line.push(c)
		return
	}
	e.admitLocked(c)
}

func (e *Engine) admitLocked(c *Call) {
	e.ops++
	e.bytes += c.cost
	c.state = running
	if c.admitted != nil {
		close(c.admitted)
		c.admitted = nil
	}
	e.m.Submit(&c.op)
}

// leftLocked gives the room of a call back, and lets in those who wait for it.
func (e *Engine) leftLocked(c *Call) {
	e.ops--
	e.bytes -= c.cost
	for e.line.first != nil && e.roomLocked(e.line.first) && !e.over {
		next := e.line.first
		e.line.remove(next)
		e.admitLocked(next)
	}
}

// admittedIn waits until a call that Start has put into the line is under way.
func (e *Engine) admittedIn(ctx context.Context, c *Call, admitted <-chan struct{}) error {
	select {
	case <-admitted:
		return nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	if c.state != inLine || c.admitted != admitted {
		e.mu.Unlock()
		return nil // it came just before
	}
	err := e.errorLocked(c, context.Cause(ctx), false)
	e.line.remove(c)
	c.state, c.admitted = idle, nil
	e.unlock()
	return err
}
