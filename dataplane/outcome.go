package dataplane

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
