package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// An open handler changes cores with its socket (loop.Socket.Detach). The frame reader keeps its
// unfinished frame, except the buffer, which belongs to a core: its bytes are copied into a
// buffer of the new core.

// migrationState is the migration state of a handler that has a socket.
type migrationState struct {
	socket  *loop.Detached
	partial []byte // head and rest of the frame under way, as far as they are there
}

// Migrate brings the handler to core to with its socket, open or not: no byte is lost, and the
// peer does not notice. As in Move, the owner gets Moving on the old core and Moved, with
// Migrated, on the new one, and done runs there after it.
//
// The socket leaves after the end of its last write. A peer that does not read can delay that;
// an event that is posted meanwhile, and a socket that faults, end the wait: the handler then
// arrives in delay, and its owner has got Faulted. The same happens if the new core cannot
// take the socket. From the call on the handler counts at the new core, too: the target stays
// alive until the handler has arrived.
func (h *Handler) Migrate(to *loop.Core, done func()) {
	to.AddLoad(1)
	h.post(2, func(h *Handler, c *loop.Core) {
		switch s := h.sock; {
		case to == c:
			c.AddLoad(-1)
			h.passSecond()
			if done != nil {
				done()
			}
		case s == nil:
			h.hop(c, to, MoveCause{Migrated: true}, nil, done)
		default:
			waited := len(h.in.early) > 0
			s.Detach(func(c *loop.Core, d *loop.Detached) {
				var l *migrationState
				if d != nil {
					l = h.detachState(s, d)
				}
				h.hop(c, to, MoveCause{Migrated: true}, l, done)
			})
			if waited && h.core.Load() == c { // otherwise it has left already and belongs to the other core
				h.faultDetaching()
			}
		}
	})
}

// faultDetaching faults a socket that is about to leave its core. An event waits for
// that, and every event of the protocol ends the socket anyway.
func (h *Handler) faultDetaching() {
	if s := h.sock; s != nil && s.Leaving() {
		s.Fault(loop.ErrLinkClosed)
	}
}

// detachState collects the migration state on the old core.
func (h *Handler) detachState(s *loop.Socket, d *loop.Detached) *migrationState {
	c, r := s.Core(), h.framer.frame()
	l := &migrationState{socket: d}
	if b := r.target; b != nil {
		data := r.apart.filled(r.fill)
		l.partial = bytes.Clone(b.Bytes()[r.at-r.headLen : r.at+r.fill-data])
		r.apart.leave(data)
		c.TakeBack(b)
		r.target = nil
	}
	c.Stop(&h.idle)
	c.Stop(&h.progress)
	r.charge.Yield(s)
	h.sock = nil
	return l
}

// attachState goes on with the socket on its new core.
func (h *Handler) attachState(c *loop.Core, l *migrationState) {
	if err := h.adopt(c, l); err != nil {
		h.tellTap(err)
		h.endFraming(nil)
		h.fault(err)
		return
	}
	h.sock.Continue()
}

// adopt makes the socket that l describes. On an error the descriptor is
// closed.
func (h *Handler) adopt(c *loop.Core, l *migrationState) error {
	s, err := c.Attach(l.socket, h.framer)
	if err != nil {
		return err
	}
	h.sock, h.local = s, localOf(c)
	h.holdPaused(s)
	if l.partial != nil {
		if err := h.framer.frame().restore(s, l.partial); err != nil {
			h.sock = nil
			s.Close(err)
			return err
		}
	}
	if o := h.pace; o.idleAfter > 0 || o.keepaliveEvery > 0 {
		c.Arm(&h.idle, c.Now()) // it checks everything that is due
	}
	return nil
}

// ErrFrozen: the connection is about to belong to another process.
var ErrFrozen = errors.New("dataplane: connection is being handed over")

// sealed stands in the inbox of a frozen handler: Send finds it there instead
// of a place for its message, in the same atomic step.
var sealed = new(Message)

// HandlerState is the state of a lossless handler for its successor in another process. Its
// owner holds a reference to each message, until Release.
type HandlerState struct {
	InSeq  uint64     // highest sequence received and dispatched
	OutSeq uint64     // highest sequence sent; that of the last of Sent
	Sent   []*Message // sent and not acknowledged, without a gap
	Replay []*Message // to be sent again before everything else
	Queued []*Message // to be sent, by falling priority
}

// Release gives the references to the messages back. Any goroutine.
func (st *HandlerState) Release() {
	for _, m := range st.all() {
		m.Release()
	}
}

// all are the messages in the order in which they are sent.
func (st *HandlerState) all() []*Message { return slices.Concat(st.Sent, st.Replay, st.Queued) }

// Freeze closes the socket, refuses later messages with ErrFrozen, and gives answer, on the
// core, the state. A message for which Send has returned nil is in it. The state is empty if
// the handler is closed.
func (h *Handler) Freeze(answer func(HandlerState)) {
	h.post(1, func(h *Handler, _ *loop.Core) {
		if h.state == stateDrop {
			answer(HandlerState{})
			return
		}
		h.closeSocket(loop.ErrLinkClosed)
		h.state, h.reportQueued = stateDelay, false
		for h.inbox.Load() != sealed {
			h.takeInbox()
			h.inbox.CompareAndSwap(nil, sealed)
		}
		answer(h.export())
	})
}

// Thaw takes back a Freeze: Send works again, and the handler is in delay.
func (h *Handler) Thaw() {
	h.post(1, func(h *Handler, _ *loop.Core) {
		h.inbox.CompareAndSwap(sealed, nil)
		h.held.wake()
	})
}

func (h *Handler) export() HandlerState {
	st := HandlerState{
		InSeq: h.inSeq, OutSeq: h.outSeq, Sent: h.sent.all(), Replay: h.queue.replay.all(), Queued: h.queue.all(),
	}
	for _, m := range st.all() {
		m.Retain()
	}
	return st
}

// all are the messages of the list.
func (l *messageList) all() (list []*Message) {
	for m := l.first; m != nil; m = m.next {
		list = append(list, m)
	}
	return list
}

// Restore gives a new handler the state of a frozen one, in delay. It takes over one reference
// to each message, beyond the bounds of the queue. Call it first; after an error the handler is
// of no use.
func (h *Handler) Restore(st HandlerState) error {
	if n := uint64(len(st.Sent)); n > st.OutSeq {
		return fmt.Errorf("dataplane: %d sent messages, and the last one has sequence %d", n, st.OutSeq)
	}
	h.state, h.inSeq, h.outSeq = stateDelay, st.InSeq, st.OutSeq
	for _, m := range st.all() {
		if err := h.charge(m); err != nil {
			return err
		}
	}
	for _, m := range st.Replay {
		h.sent.push(m)
	}
	h.queue.requeue(&h.sent)
	for i, m := range st.Sent {
		m.seq = st.OutSeq - uint64(len(st.Sent)-1-i)
		h.sent.push(m)
	}
	for _, m := range st.Queued {
		h.queue.push(m)
	}
	return nil
}

// charge counts a message that did not come by Send.
func (h *Handler) charge(m *Message) error {
	if !m.queued.CompareAndSwap(false, true) {
		return ErrInUse
	}
	m.queuedBytes, m.timing = int64(m.Size()), untimed
	m.payload().queue()
	h.held.add(m.queuedBytes)
	return nil
}

// refuse undoes the steps of Send for m after it found the inbox sealed. It wakes no waiter:
// there is no room.
func (h *Handler) refuse(m *Message) error {
	m.tracker = nil
	h.held.undo(1, m.queuedBytes)
	if p := m.payload(); p.charge.Bounded() && p.queues.Add(-1) == 0 {
		p.recharge() // its reference stays with the caller
	}
	m.queued.Store(false)
	return ErrFrozen
}

// inboxed reports whether messages of Send wait for the core.
func (h *Handler) inboxed() bool {
	m := h.inbox.Load()
	return m != nil && m != sealed
}
