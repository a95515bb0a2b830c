package control

import (
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Message is one message; see dataplane.Message for who owns it and until when.
type Message = dataplane.Message

// NewMessage makes a message to send.
func NewMessage(typ uint16, front, data []byte) *Message {
	return dataplane.NewMessage(typ, front, data)
}

// Outcome is what became of a message that was sent (Message.Outcome).
type Outcome = dataplane.Outcome

// The outcomes; see those of package dataplane.
const (
	OutcomeNone         = dataplane.OutcomeNone
	OutcomeWritten      = dataplane.OutcomeWritten
	OutcomeAcknowledged = dataplane.OutcomeAcknowledged
	OutcomeDropped      = dataplane.OutcomeDropped
	OutcomeHandedOver   = dataplane.OutcomeHandedOver
)

// Dispatcher receives the messages and events of a messenger. Every field is
// optional. Several form a chain (Messenger.Start): a message goes to the first
// whose Fast returns true, else to the first that has Queued; an event goes to
// all, in order.
//
// Fast and the events of a connection run on the core that owns it, one at a
// time. They must not block, nor call what waits for a core (Stats, Shutdown,
// WaitReady); Send, Keepalive and MarkDown are meant to be called from them. A
// panic in them is not recovered: it ends the process. runtime.Goexit in them
// fails the core.
type Dispatcher struct {
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
	// Reset: the connection is over, not by MarkDown. What was not delivered
	// is lost; what waits for Queued is dispatched before, unless the core is
	// being removed. It comes once at most, and behind Accept or Connect; a connection
	// that we dial and that never got so far has it only if dialling again is
	// pointless (Once, ErrWrongPeer, ErrAuth for good), or if the peer's own
	// connection took its place.
	Reset func(c *Conn, replace bool)
	// RemoteReset: the peer lost its session. What was queued and not
	// delivered is dropped, as is what waits for Queued; the connection goes on.
	RemoteReset func(c *Conn)
	// KeepaliveAck: the peer answered the keepalive that left us at that time,
	// on the wall clock.
	KeepaliveAck func(c *Conn, sent time.Time)
}

// resetEvent and remoteResetEvent travel to the core among the other events of
// a handler.
type (
	resetEvent       struct{ replace bool }
	remoteResetEvent struct{}
)

// Conn is the handler's owner; these run on its core.
type owner struct{ *Conn }

func (o owner) Dispatch(_ *dataplane.Handler, m *Message) {
	o.m.mu.check.enterCore()
	o.m.dispatch(o.Conn, m)
	o.m.mu.check.leaveCore()
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

func (o owner) Faulted(n uint64, err error, snap dataplane.Snapshot) {
	o.line.flush()
	o.m.notify(notification{conn: o.Conn, n: n, err: err, snapshot: snap, kind: notifyFault})
}

func (o owner) Queued(n uint64) { o.m.notify(notification{conn: o.Conn, n: n, kind: notifyQueued}) }

func (o owner) Moving(_ *dataplane.Handler, to *dataplane.Core) {
	o.m.mu.check.enterCore()
	defer o.m.mu.check.leaveCore()
	for _, d := range o.m.chain.list {
		if d.Move != nil && !o.userDown.Load() {
			d.Move(o.Conn, to.ID())
		}
	}
}

func (o owner) Moved(_ *dataplane.Handler, from *dataplane.Core, ev dataplane.MoveCause) {
	o.m.mu.check.enterCore()
	defer o.m.mu.check.leaveCore()
	for _, d := range o.m.chain.list {
		switch {
		case o.userDown.Load():
		case ev.Migrated:
			if d.Moved != nil {
				d.Moved(o.Conn, from.ID())
			}
		case ev.Accepted && d.Accept != nil:
			d.Accept(o.Conn, from.ID(), ev.Replace)
		case !ev.Accepted && d.Connect != nil:
			d.Connect(o.Conn, from.ID())
		}
	}
}

func (o owner) Happened(_ *dataplane.Handler, what any) {
	o.m.mu.check.enterCore()
	defer o.m.mu.check.leaveCore()
	if _, lost := what.(remoteResetEvent); lost {
		o.queue.discard(o.Conn)
		o.line.flush()
	}
	o.calls.lose(o.Conn)
	o.postings.lose(o.Conn)
	for _, d := range o.m.chain.list {
		switch ev := what.(type) {
		case resetEvent:
			if d.Reset != nil && !o.userDown.Load() && !o.draining.Load() {
				d.Reset(o.Conn, ev.replace)
			}
		case remoteResetEvent:
			if d.RemoteReset != nil && !o.userDown.Load() {
				d.RemoteReset(o.Conn)
			}
		}
	}
}

func (o owner) KeepaliveAck(_ *dataplane.Handler, sent dataplane.Timestamp) {
	o.m.mu.check.enterCore()
	defer o.m.mu.check.leaveCore()
	for _, d := range o.m.chain.list {
		if d.KeepaliveAck != nil && !o.over.Load() {
			d.KeepaliveAck(o.Conn, sent.Time())
		}
	}
}
