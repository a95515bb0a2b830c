package control

import (
	"context"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Message is one message; dataplane.Message says who owns it and until when.
type Message = dataplane.Message

// NewMessage makes a message to send.
func NewMessage(typ uint16, front, data []byte) *Message {
	return dataplane.NewMessage(typ, front, data)
}

// Dispatcher receives the messages and events of a messenger. Every field is optional. Several
// form a chain (Messenger.Start): a message goes to the first whose ByType has its type or
// whose Fast returns true, else to the first with Queued. All others are dropped, and counted
// (Counters.Undispatched). An event goes to all, in order.
//
// ByType, Fast and the events of a connection run on the core that owns it, one at a time. They
// must not block, nor call functions that wait for a core (Stats, Shutdown, WaitReady). A panic
// in them ends the process; runtime.Goexit fails the core.
type Dispatcher struct {
	// ByType gets the messages of its types on the core, before Fast; m is valid as in Fast. It
	// must not change after Start.
	ByType map[uint16]func(c *Conn, m *Message)
	// Fast gets a message on the core, and returns true if it took it. m and its payload are
	// valid during the call, unless retained.
	Fast func(c *Conn, m *Message) bool
	// Queued gets a message on a goroutine of the connection, in order. m is valid during the
	// call, unless retained. Waiting messages count against Config.Receiving. It must not wait
	// for Closed of its own connection.
	Queued func(c *Conn, m *Message)

	// Accept: the connection was accepted, or an accepted socket took it over; from is its core
	// before. replace: it takes the place of a lossy connection of the same address, which gets
	// Reset with replace.
	Accept func(c *Conn, from int, replace bool)
	// Connect: the connection reached its peer, for the first time or again.
	Connect func(c *Conn, from int)
	// Move: the connection is about to go to another core; the last call on the old one.
	Move func(c *Conn, to int)
	// Moved: the connection has come to this core with its socket, because the other core was
	// removed or failed; the first call on the new one. A move for a new socket ends with
	// Accept or Connect instead.
	Moved func(c *Conn, from int)
	// Fault: a lossless connection has lost its socket, and goes on: messages and calls wait.
	// Connect or Accept follows when the peer is back, Reset if it does not come. err is the
	// reason: loop.ErrPeerClosed after a Drain, a MarkDown or the end of the peer's process;
	// syscall.ECONNRESET if bytes of ours were on the way.
	Fault func(c *Conn, err error)
	// Reset: the connection is over, not by MarkDown. Undelivered messages are lost; messages
	// that wait for Queued are dispatched before, unless the core is being removed. It comes
	// once at most, after Accept or Connect. A dialled connection without these has it only if
	// dialling again is pointless (Once, ErrWrongPeer, a final ErrAuth), or if the peer's own
	// connection took its place.
	Reset func(c *Conn, replace bool)
	// RemoteReset: the peer lost its session. Undelivered messages are dropped, and those that
	// wait for Queued; the connection goes on, with its unwritten requests (Conn.Call).
	RemoteReset func(c *Conn)
	// KeepaliveAck: the peer answered the keepalive that we sent at that time, by the wall
	// clock.
	KeepaliveAck func(c *Conn, sent time.Time)
}

// user is a connection as its session and its handler know it. The handler calls it on the
// core.
type user struct{ c *Conn }

// Conn implements sessions.User, like those below.
func (u user) Conn() *sessions.Conn { return &u.c.s }

func (u user) Probed() probe.Conn { return u.c }

func (u user) Cease() { u.c.over.Store(true) }

func (u user) Finish() (waits bool) {
	return u.c.queue.finish(u.c)
}

func (u user) Idle() <-chan struct{} {
	return u.c.queue.drained()
}

func (u user) Due() int {
	if u.c.over.Load() {
		return 0 // nobody can give them any more
	}
	u.c.reads.Load().lose(true) // no ack frees memory for those that wait
	return int(max(0, u.c.due.Load().Load()))
}

func (u user) Closed() {
	u.c.over.Store(true)
	u.Lost()
}

func (u user) Lost() {
	u.c.calls.lose(u.c, false)
	u.c.postings.lose(u.c, false)
	u.c.reads.Load().lose(false)
}

func (u user) Faulted(n uint64, err error, snap dataplane.Snapshot) {
	u.c.s.Faulted(n, err, snap)
	if u.c.over.Load() || u.c.draining.Load() || u.c.Info().Lossy {
		return
	}
	u.each(func(d *Dispatcher) {
		if d.Fault != nil {
			d.Fault(u.c, err)
		}
	})
}

// each calls f, which calls the embedder's code, for each dispatcher until the connection is marked down. The connection
// to ourselves has no events.
func (u user) each(f func(d *Dispatcher)) {
	u.c.m.s.Check().EnterCore()
	defer u.c.m.s.Check().LeaveCore()
	for _, d := range u.c.m.chain.list {
		if !u.c.local && !u.c.s.MarkedDown() {
			f(d)
		}
	}
}

func (u user) Queued(n uint64) { u.c.s.Queued(n) }

func (u user) Dispatch(_ *dataplane.Handler, m *Message) {
	u.c.m.s.Check().EnterCore()
	u.c.m.dispatch(u.c, m)
	u.c.m.s.Check().LeaveCore()
}

// dispatch gives a message to the call that waits for it, or to the chain, on the
// core of its connection.
func (m *Messenger) dispatch(c *Conn, msg *Message) {
	if c.calls.answered(msg) {
		return
	}
	if d := m.chain.offer(c, msg); d != nil {
		if msg.Retain(); !c.queue.push(m, c, d, msg) {
			msg.Release()
		}
	}
}

func (u user) Moving(_ *dataplane.Handler, to *loop.Core) {
	u.each(func(d *Dispatcher) {
		if d.Move != nil {
			d.Move(u.c, to.ID())
		}
	})
}

func (u user) Moved(_ *dataplane.Handler, from *loop.Core, ev dataplane.MoveCause) {
	u.each(func(d *Dispatcher) {
		switch {
		case ev.Migrated:
			if d.Moved != nil {
				d.Moved(u.c, from.ID())
			}
		case ev.Accepted && d.Accept != nil:
			d.Accept(u.c, from.ID(), ev.Replace)
		case !ev.Accepted && d.Connect != nil:
			d.Connect(u.c, from.ID())
		}
	})
}

func (u user) Happened(_ *dataplane.Handler, what any) {
	u.c.m.s.Check().EnterCore() // up to the end of each
	_, goesOn := what.(sessions.RemoteReset)
	if goesOn {
		u.c.queue.discard(u.c)
	}
	u.c.calls.lose(u.c, goesOn)
	u.c.postings.lose(u.c, goesOn)
	u.each(func(d *Dispatcher) {
		switch ev := what.(type) {
		case sessions.Reset:
			if d.Reset != nil && !u.c.draining.Load() {
				d.Reset(u.c, ev.Replace)
			}
		case sessions.RemoteReset:
			if d.RemoteReset != nil {
				d.RemoteReset(u.c)
			}
		}
	})
}

func (u user) KeepaliveAck(_ *dataplane.Handler, sent dataplane.Timestamp) {
	u.each(func(d *Dispatcher) {
		if d.KeepaliveAck != nil && !u.c.over.Load() {
			d.KeepaliveAck(u.c, sent.Time())
		}
	})
}

// chain are the dispatchers of a messenger.
type chain struct {
	list    []*Dispatcher // set by Start, then fixed
	self    Dispatcher    // runs the whole chain for the connection to ourselves
	dropped atomic.Uint64 // messages that no dispatcher took
}

// offer is the rule of the chain: the first whose Fast takes the message has it, else the first
// with Queued, which is the result, for the caller to call. nil: no further call is due.
func (ch *chain) offer(c *Conn, msg *Message) (queued *Dispatcher) {
	for _, d := range ch.list {
		if f := d.ByType[msg.Type]; f != nil {
			f(c, msg)
			return nil
		}
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

// dispatchQueue carries messages of one connection from its core to a
// goroutine, in order. The goroutine exists while there are messages.
type dispatchQueue struct {
	mu      sync.Mutex
	waiting []queuedMessage // guarded by mu
	running bool            // guarded by mu
	idle    chan struct{}   // closed when no message is left; guarded by mu
	last    bool            // the waiting messages are the last ones, or a local connection rests; guarded by mu
}

type queuedMessage struct {
	d    *Dispatcher
	m    *Message
	size int // when it came; on a local connection it is reserved
}

// drop releases a message that will not be dispatched.
func (e queuedMessage) drop(c *Conn) {
	if c.local {
		dataplane.Settle(e.m, dataplane.OutcomeDropped)
	}
	e.done(c)
}

// done releases a message that has been dispatched.
func (e queuedMessage) done(c *Conn) {
	e.m.Release()
	if c.local {
		c.s.Handler().Unreserve(e.size)
	}
}

// push adds a message. It returns false, and leaves the message to the caller, if no message is
// dispatched any more.
func (q *dispatchQueue) push(m *Messenger, c *Conn, d *Dispatcher, msg *Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case c.over.Load():
		return false
	case q.running:
	case !m.queues.Enter(): // after the shutdown no dispatcher is called
		return false
	default:
		q.running = true
		go q.run(m, c)
	}
	q.waiting = append(q.waiting, queuedMessage{d, msg, msg.Size()})
	return true
}

func (q *dispatchQueue) run(m *Messenger, c *Conn) {
	pprof.SetGoroutineLabels(context.Background()) // a core started it, but the work is not the core's
	defer m.queues.Leave()
	var batch []queuedMessage
	for {
		q.mu.Lock()
		session := c.due.Load()
		clear(batch)
		batch, q.waiting = q.waiting, batch[:0]
		if len(batch) == 0 {
			q.running = false
			q.waiting = nil
			last := q.last
			if q.last = false; last {
				c.over.Store(true)
			}
			if q.idle != nil {
				close(q.idle)
				q.idle = nil
			}
			q.mu.Unlock()
			if last {
				c.s.Dispatched()
			}
			return
		}
		q.mu.Unlock()
		for _, e := range batch {
			if c.over.Load() || c.due.Load() != session {
				e.drop(c)
				continue
			}
			m.s.Check().MustBeFree("a dispatcher")
			if c.local { // before the dispatcher can send it on
				dataplane.Settle(e.m, dataplane.OutcomeAcknowledged)
			}
			e.d.Queued(c, e.m)
			e.done(c)
		}
	}
}

// discard drops the messages that wait, as their session has ended.
func (q *dispatchQueue) discard(c *Conn) {
	q.mu.Lock()
	c.due.Store(new(atomic.Int64))
	old := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	c.reads.Load().lose(false)
	for _, e := range old {
		e.drop(c)
	}
}

// finish ends the dispatching after the messages of earlier pushes. It reports whether some of
// them wait; then the goroutine of the queue tells the session when they are done.
func (q *dispatchQueue) finish(c *Conn) (waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last = q.running; !q.last {
		c.over.Store(true)
	}
	return q.last
}

// rests reports whether all pushed messages have been dispatched, and no reply is due. A local
// connection takes no message from then on; one that was over before does not rest.
func (q *dispatchQueue) rests(c *Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running || c.due.Load().Load() > 0 {
		return false
	}
	q.last = q.last || c.local && !c.over.Swap(true)
	return q.last || !c.local
}

// drained returns a channel that closes when all pushed messages have been dispatched.
func (q *dispatchQueue) drained() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	if !q.running {
		close(q.idle)
		q.idle = nil
	}
	return idle
}
