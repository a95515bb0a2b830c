package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control"
)

// echoer answers every message with itself.
type echoer struct {
	behind  sync.Map     // *control.Conn to *echoes: those that have no room now
	waiting atomic.Int64 // how many those are
}

// echo sends a message back, on the core that received it and without a copy
// of a large payload. Where the sending queue is full the message waits for
// room, and those behind it wait with it: they then count against the receive
// budget, so that the peer is not read until it has acknowledged something.
func (e *echoer) echo(c *control.Conn, m *control.Message) bool {
	m.Retain()
	if e.waiting.Load() > 0 {
		if behind, ok := e.behind.Load(c); ok && behind.(*echoes).join(m) {
			return true
		}
	}
	switch err := c.Send(m); {
	case err == nil:
	case errors.Is(err, control.ErrQueueFull):
		e.waiting.Add(1)
		behind := &echoes{waiting: []*control.Message{m}}
		e.behind.Store(c, behind)
		go func() {
			behind.send(c)
			e.behind.CompareAndDelete(c, behind)
			e.waiting.Add(-1)
		}()
	default:
		m.Release() // the connection has just ended
	}
	return true
}

// echoes are those of one connection that wait for room, in order.
type echoes struct {
	mu      sync.Mutex
	waiting []*control.Message // guarded by mu
	sent    bool               // nothing waits any more; guarded by mu
}

// join has m wait behind others. It returns false if nothing waits.
func (e *echoes) join(m *control.Message) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent {
		return false
	}
	e.waiting = append(e.waiting, m)
	return true
}

// send runs until nothing waits. The end of the connection ends every wait.
func (e *echoes) send(c *control.Conn) {
	for {
		e.mu.Lock()
		if len(e.waiting) == 0 {
			e.sent = true
			e.mu.Unlock()
			return
		}
		m := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.mu.Unlock()
		if err := c.SendContext(context.Background(), m); err != nil {
			m.Release()
		}
	}
}
