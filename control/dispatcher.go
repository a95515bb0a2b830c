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

// Message is one message; see dataplane.Message for who owns it and until when.
type Message = dataplane.Message

// NewMessage makes a message to send.
func NewMessage(typ uint16, front, data []byte) *Message {
	return dataplane.NewMessage(typ, front, data)
}

// Dispatcher receives the messages and events of a messenger. Every field is
// optional. Several form a chain (Messenger.Start): a message goes to the first
// whose ByType has its type or whose Fast returns true, else to the first that has
// Queued; what nobody takes is dropped, and counted (Counters.Undispatched). An event
// goes to all, in order.
//
// ByType, Fast and the events of a connection run on the core that owns it, one at a
// time. They must not block, nor call what waits for a core (Stats, Shutdown,
// WaitReady); Send, Keepalive and MarkDown are meant to be called from them. A
// panic in them is not recovered: it ends the process. runtime.Goexit in them
// fails the core.
type Dispatcher struct {
	// ByType gets the messages of its types on the core; m is valid as in Fast. It is asked
	// before Fast, which gets all other types, and may refuse them. It must not change after
	// Start.
	ByType map[uint16]func(c *Conn, m *Message)
	// Fast gets a message on the core. It returns true if it took it. m and
	// its payload are valid during the call, unless retained.
	Fast func(c *Conn, m *Message) bool
	// Queued gets a message on a goroutine of the connection, in order. m is
	// valid during the call, unless retained. Messages that wait for it count
	// against the dispatch limit. It must not wait for Closed of its own
	// connection, which ends behind the calls that are due.
	Queued func(c *Conn, m *Message)

	// Accept: the connection was accepted, or an accepted socket took it over;
	// from is the core that it was on before. replace: it takes the place of a
	// lossy connection of the same address, which gets Reset with replace.
	Accept func(c *Conn, from int, replace bool)
	// Connect: the connection reached its peer, for the first time or again.
	Connect func(c *Conn, from int)
	// Move: the connection is about to go to another core; the last call on
	// the old one.
	Move func(c *Conn, to int)
	// Moved: the connection has come to this core as it was, with the TCP
	// connection that it had, because the other core was removed or failed; the
	// first call on the new one. A move for a new TCP connection ends with
	// Accept or Connect instead.
	Moved func(c *Conn, from int)
	// Fault: a lossless connection has lost its TCP connection, and goes on: messages and
	// calls wait. Connect or Accept follows when the peer is back, Reset if it does not
	// come. err is why: loop.ErrPeerClosed where the peer has ended its stream, by a
	// Drain, a MarkDown or the end of its process, which the protocol does not tell apart;
	// syscall.ECONNRESET where bytes of ours were on the way.
	// Who knows another peer can go there at once.
	Fault func(c *Conn, err error)
	// Reset: the connection is over, not by MarkDown. What was not delivered
	// is lost; what waits for Queued is dispatched before, unless the core is
	// being removed. It comes once at most, and behind Accept or Connect; a connection
	// that we dial and that never got so far has it only if dialling again is
	// pointless (Once, ErrWrongPeer, ErrAuth for good), or if the peer's own
	// connection took its place.
	Reset func(c *Conn, replace bool)
	// RemoteReset: the peer lost its session. What was queued and not
	// delivered is dropped, as is what waits for Queued; the connection goes on,
	// and requests (Conn.Call) that were not written yet with it.
	RemoteReset func(c *Conn)
	// KeepaliveAck: the peer answered the keepalive that left us at that time,
	// on the wall clock.
	KeepaliveAck func(c *Conn, sent time.Time)
}

// user is a connection as its session and its handler have it. What its handler calls
// runs on the core.
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

func (u user) Closed() {
	u.c.over.Store(true)
	u.c.calls.lose(u.c, false)
	u.c.postings.lose(u.c)
	u.c.reads.Load().lose()
}

func (u user) Faulted(n uint64, err error, snap dataplane.Snapshot) {
	u.c.s.Faulted(n, err, snap)
	if u.c.over.Load() || u.c.draining.Load() || u.c.Info().Lossy {
		return
	}
	u.c.m.s.EnterCore()
	defer u.c.m.s.LeaveCore()
	for _, d := range u.c.m.chain.list {
		if d.Fault != nil && !u.c.s.MarkedDown() {
			d.Fault(u.c, err)
		}
	}
}

func (u user) Queued(n uint64) { u.c.s.Queued(n) }

func (u user) Dispatch(_ *dataplane.Handler, m *Message) {
	u.c.m.s.EnterCore()
	u.c.m.dispatch(u.c, m)
	u.c.m.s.LeaveCore()
}

// dispatch gives a message to the call that waits for it, or to the chain, on the
// core of its connection.
func (m *Messenger) dispatch(c *Conn, msg *Message) {
	if c.calls.answered(msg) {
		return
	}
	if d := m.chain.offer(c, msg); d != nil {
		msg.Retain()
		c.queue.push(m, c, d, msg)
	}
}

func (u user) Moving(_ *dataplane.Handler, to *loop.Core) {
	u.c.m.s.EnterCore()
	defer u.c.m.s.LeaveCore()
	for _, d := range u.c.m.chain.list {
		if d.Move != nil && !u.c.s.MarkedDown() {
			d.Move(u.c, to.ID())
		}
	}
}

func (u user) Moved(_ *dataplane.Handler, from *loop.Core, ev dataplane.MoveCause) {
	u.c.m.s.EnterCore()
	defer u.c.m.s.LeaveCore()
	for _, d := range u.c.m.chain.list {
		switch {
		case u.c.s.MarkedDown():
		case ev.Migrated:
			if d.Moved != nil {
				d.Moved(u.c, from.ID())
			}
		case ev.Accepted && d.Accept != nil:
			d.Accept(u.c, from.ID(), ev.Replace)
		case !ev.Accepted && d.Connect != nil:
			d.Connect(u.c, from.ID())
		}
	}
}

func (u user) Happened(_ *dataplane.Handler, what any) {
	u.c.m.s.EnterCore()
	defer u.c.m.s.LeaveCore()
	_, goesOn := what.(sessions.RemoteReset)
	if goesOn {
		u.c.queue.discard(u.c)
	}
	u.c.calls.lose(u.c, goesOn)
	u.c.postings.lose(u.c)
	for _, d := range u.c.m.chain.list {
		switch ev := what.(type) {
		case sessions.Reset:
			if d.Reset != nil && !u.c.s.MarkedDown() && !u.c.draining.Load() {
				d.Reset(u.c, ev.Replace)
			}
		case sessions.RemoteReset:
			if d.RemoteReset != nil && !u.c.s.MarkedDown() {
				d.RemoteReset(u.c)
			}
		}
	}
}

func (u user) KeepaliveAck(_ *dataplane.Handler, sent dataplane.Timestamp) {
	u.c.m.s.EnterCore()
	defer u.c.m.s.LeaveCore()
	for _, d := range u.c.m.chain.list {
		if d.KeepaliveAck != nil && !u.c.over.Load() {
			d.KeepaliveAck(u.c, sent.Time())
		}
	}
}

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
	session atomic.Uint64   // counts what discard ended; changes under mu
	idle    chan struct{}   // closed when there is nothing left; guarded by mu
	last    bool            // what waits is the last: nothing else will come; guarded by mu
}

type queuedMessage struct {
	d    *Dispatcher
	m    *Message
	size int // when it came; on a local connection it is reserved
}

// drop releases a message that never will be dispatched.
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

func (q *dispatchQueue) push(m *Messenger, c *Conn, d *Dispatcher, msg *Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, queuedMessage{d, msg, msg.Size()})
	if q.running {
		return
	}
	if !m.queues.Enter() {
		for _, e := range q.waiting {
			e.drop(c) // after the shutdown no dispatcher is called
		}
		q.waiting = nil
		return
	}
	q.running = true
	go q.run(m, c)
}

func (q *dispatchQueue) run(m *Messenger, c *Conn) {
	pprof.SetGoroutineLabels(context.Background()) // a core started it, and it is not its work
	defer m.queues.Leave()
	var batch []queuedMessage
	for {
		q.mu.Lock()
		session := q.session.Load()
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
			if c.over.Load() || q.session.Load() != session {
				e.drop(c)
				continue
			}
			m.s.MustBeFree("a dispatcher")
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
	q.session.Add(1)
	old := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	c.reads.Load().lose()
	for _, e := range old {
		e.drop(c)
	}
}

// finish ends the dispatching: nothing is dispatched any more behind what has been pushed.
// It says whether some of that still waits; then the goroutine of the queue tells the
// session when nothing waits any more.
func (q *dispatchQueue) finish(c *Conn) (waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running {
		c.over.Store(true)
		return false
	}
	q.last = true
	return true
}

// isIdle says that everything that was pushed has been dispatched.
func (q *dispatchQueue) isIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.running
}

// drained returns a channel that closes when everything that was pushed has
// been dispatched.
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
