package dataplane

// Outcome is what became of a message that was sent.
type Outcome uint8

// The outcomes.
const (
	// OutcomeNone: it was not sent, or is still in a sending queue.
	OutcomeNone Outcome = iota
	// OutcomeWritten: it went into a write of a lossy session, where nobody
	// acknowledges. Whether the write came to an end, and whether the peer has read it,
	// nobody knows.
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

// Outcome is what became of the message since the last Send of it that succeeded. It
// is for Free, and for who knows in another way that the messenger has let go of the
// message: not while another goroutine may send it.
func (m *Message) Outcome() Outcome { return m.outcome }

// Settle says what became of a message in a queue that the caller keeps itself
// (Handler.Reserve). It comes before the queue's reference is released.
func Settle(m *Message, o Outcome) { m.outcome = o }

// HandedOver says that another process has the session: what the handler still has
// when it is closed counts as handed over. Any goroutine.
func (h *Handler) HandedOver() { h.handedOver.Store(true) }

// leftover is the outcome of what a handler has when its session ends.
func (h *Handler) leftover() Outcome {
	if h.handedOver.Load() {
		return OutcomeHandedOver
	}
	return OutcomeDropped
}
