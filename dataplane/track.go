package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

// Tracker follows one message through the sending queue of a handler. Its
// methods run on the handler's core, one at a time, and must not block.
type Tracker interface {
	// Taken: the core has the message, and no byte of it is written yet, so that its answer
	// comes later. A closed handler takes no message.
	Taken()
	// Left: the message is no longer in the queue. OutcomeWritten: it went into a write for the
	// first time, on a lossless session too. OutcomeDropped: it was withdrawn, or the
	// connection has ended, before a byte of it was written. OutcomeHandedOver: another process
	// has it. Left comes once, and last.
	Left(o Outcome)
}

// SendTracked is Send for a message with a Tracker: unwritten, it outlives a reset of its
// session. After an error t gets no call. Any goroutine.
func (h *Handler) SendTracked(m *Message, t Tracker) error { return h.send(m, t) }

// Withdraw drops a message that a Tracker has seen Taken and not yet Left: it
// releases the queue's reference, and the Tracker hears Left. It says whether the
// message was still in the queue. On the core.
func (h *Handler) Withdraw(m *Message) bool {
	if !h.queue.remove(m) {
		return false
	}
	h.releaseMessage(m, OutcomeDropped)
	return true
}

// Post has t run soon on the core that owns the handler by then (loop.Owner). Any goroutine.
func (h *Handler) Post(t *loop.Task) { h.core.Post(t) }

// Do has f run soon on the core that then owns the handler, after the messages of earlier
// calls of Send are queued. It does not wait. After the end of a core f still runs, see
// Core.Post. Any goroutine.
func (h *Handler) Do(f func(c *loop.Core)) {
	h.core.Post(&loop.Task{Run: func(c *loop.Core) {
		h.takeInbox()
		h.wake()
		f(c)
	}})
}

// left reports to the Tracker of m that it has left the queue. The caller does it last, as m
// may then be queued again.
func left(t Tracker, o Outcome) {
	if t != nil {
		t.Left(o)
	}
}
