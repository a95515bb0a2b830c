package control

import (
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// dispatchLine holds back received messages of one connection (DispatchDelay). They
// are in its dispatchQueue, whose goroutine waits for the moment of each, has the core
// dispatch it, and calls Dispatcher.Queued if that is what is left to do. So order,
// discarding and the end of the connection are those of the queue.
type dispatchLine struct {
	inject *injector

	mu      sync.Mutex
	flushed chan struct{} // closed by flush, and replaced; guarded by mu
}

// flush has what waits now dispatched at once. nil has nothing that waits.
func (l *dispatchLine) flush() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flushed)
	l.flushed = make(chan struct{})
}

// heldMessage is one message in the line.
type heldMessage struct {
	line    *dispatchLine
	due     time.Time // zero: as soon as those before it are through
	flushed <-chan struct{}
	session uint64 // of the queue
}

// takes says whether the line takes a message, on the core. It takes those too that
// are not delayed, if others of the connection may be, to keep their order.
func (l *dispatchLine) takes(c *Conn, msg *Message) bool {
	by, ever := l.inject.late(c.PeerType(), msg.Type)
	if !ever {
		return false
	}
	l.mu.Lock()
	e := &heldMessage{line: l, flushed: l.flushed, session: c.queue.session.Load()}
	l.mu.Unlock()
	if by > 0 {
		e.due = l.inject.clock.Now().Add(by)
	}
	msg.Retain()
	c.queue.push(c.m, c, &Dispatcher{Queued: e.run}, msg)
	return true
}

// run is on the goroutine of the queue.
func (e *heldMessage) run(c *Conn, msg *Message) {
	e.wait(c)
	offered := make(chan *Dispatcher, 1)
	c.h.Do(func(*dataplane.Core) { offered <- e.offer(c, msg) })
	if d := <-offered; d != nil {
		d.Queued(c, msg)
	}
}

// wait is until the message is due, the line is flushed, or the connection has ended.
func (e *heldMessage) wait(c *Conn) {
	if e.due.IsZero() {
		return
	}
	clock, due := e.line.inject.clock, make(chan struct{})
	d := e.due.Sub(clock.Now())
	if d <= 0 {
		return
	}
	stop := clock.AfterFunc(d, func() { close(due) })
	defer stop()
	select {
	case <-due:
	case <-e.flushed:
	case <-c.Closed():
	}
}

// offer dispatches on the core, unless the connection or its session has ended.
func (e *heldMessage) offer(c *Conn, msg *Message) *Dispatcher {
	if c.over.Load() || c.queue.session.Load() != e.session {
		return nil
	}
	c.m.mu.check.enterCore()
	defer c.m.mu.check.leaveCore()
	return c.m.offer(c, msg)
}
