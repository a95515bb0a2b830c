package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

// Outcome is the fate of a message after Send.
type Outcome uint8

// The outcomes.
const (
	// OutcomeNone: it was not sent, or is still in a sending queue.
	OutcomeNone Outcome = iota
	// OutcomeWritten: it went into a write of a lossy session, which has no acks. It is unknown
	// whether the write ended, and whether the peer has read it.
	OutcomeWritten
	// OutcomeAcknowledged: the peer has acknowledged it, so that its dispatcher has got
	// it. On the connection to ourselves: it was dispatched.
	OutcomeAcknowledged
	// OutcomeDropped: the session or the connection ended before, or it was withdrawn.
	// It may have been written, and the peer may have read it.
	OutcomeDropped
	// OutcomeHandedOver: the process that has the session now has it, too, and sends it.
	OutcomeHandedOver
)

func (o Outcome) String() string {
	switch o {
	case OutcomeNone:
		return "none"
	case OutcomeWritten:
		return "written"
	case OutcomeAcknowledged:
		return "acknowledged"
	case OutcomeDropped:
		return "dropped"
	case OutcomeHandedOver:
		return "handed over"
	}
	return "invalid"
}

// Outcome is the fate of the message since its last successful Send. Call it in Free, or once
// you know in another way that the messenger has released the message; not while another
// goroutine may send it.
func (m *Message) Outcome() Outcome { return m.outcome }

// Settle sets the fate of a message in a queue of the caller's own (Handler.Reserve). Call it
// before the release of the queue's reference.
func Settle(m *Message, o Outcome) { m.outcome = o }

// HandedOver says that another process has the session: messages that the handler still has at
// its close count as handed over. Any goroutine.
func (h *Handler) HandedOver() { h.handedOver.Store(true) }

// leftover is the outcome of messages that a handler still has at the end of its session.
func (h *Handler) leftover() Outcome {
	if h.handedOver.Load() {
		return OutcomeHandedOver
	}
	return OutcomeDropped
}

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
