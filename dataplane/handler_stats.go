package dataplane

import (
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// HandlerStats counts over all sockets of one handler.
type HandlerStats struct {
	State       string `json:"state"`
	Core        int    `json:"core"`
	Opens       uint64 `json:"opens"` // times that it went open
	MessagesIn  uint64 `json:"messages_in"`
	MessagesOut uint64 `json:"messages_out"`
	BytesIn     uint64 `json:"bytes_in"`
	BytesOut    uint64 `json:"bytes_out"`
	AcksIn      uint64 `json:"acks_in"`
	AcksOut     uint64 `json:"acks_out"`
	Requeued    uint64 `json:"requeued"`
	Duplicates  uint64 `json:"duplicates"` // received again and dropped
	Gaps        uint64 `json:"gaps"`       // sequence numbers that were skipped
	InSeq       uint64 `json:"in_seq"`
	OutSeq      uint64 `json:"out_seq"`
	Queued      int    `json:"queued"`     // messages to be sent
	Sent        int    `json:"sent"`       // messages to be acknowledged
	QueueFull   uint64 `json:"queue_full"` // times that Send found no room
	AckLag      uint64 `json:"ack_lag"`    // received and not acknowledged
	Writing     bool   `json:"writing"`    // a write is in flight
	Throttled   bool   `json:"throttled"`  // it does not read, for any reason
	Paused      bool   `json:"paused"`     // by the user
	// Receive is how its present socket receives, "buffers" or "ready", ReceiveWhy why;
	// empty without one.
	Receive    loop.ReceiveMode `json:"receive,omitempty"`
	ReceiveWhy loop.Why         `json:"receive_why,omitempty"`
	// Unfinished are the received bytes of an incomplete frame.
	Unfinished int64 `json:"unfinished"`
	// Reserved is the number of bytes of Throttles.Shared that its received messages
	// hold.
	Reserved int64 `json:"reserved"`
	// Quiet is the time since the last received byte of the present socket; 0 without one.
	Quiet      time.Duration `json:"quiet_ns"`
	Keepalives Keepalives    `json:"keepalives"`
	// UnaskedAcks are KEEPALIVE2_ACK frames that answer no KEEPALIVE2 of ours
	// on the same socket. They were ignored.
	UnaskedAcks uint64 `json:"unasked_acks"`
	// ControlPauses are the times that it was not read for a while, as it brought
	// too many frames without use.
	ControlPauses uint64 `json:"control_pauses"`
	// Postings are armed now. Posted messages came into posted memory; PostingMisses
	// were for one that had no room for their data.
	Postings      int    `json:"postings"`
	Posted        uint64 `json:"posted"`
	PostingMisses uint64 `json:"posting_misses"`
}

// handlerCounters are the counters of a handler for HandlerStats.
type handlerCounters struct {
	opens, messagesIn, messagesOut, bytesIn, bytesOut, acksIn, acksOut, requeued, duplicates, gaps uint64

	unaskedAcks, controlPauses, posted, postingMisses uint64
}

// Stats takes a snapshot. It waits for the owning core's next turn, and returns
// ErrStalled if that is not to be expected, ErrOnCore on a core.
func (h *Handler) Stats() (HandlerStats, error) {
	for {
		owner := h.core.Load()
		st, err := loop.Ask(owner, func(c *loop.Core) *HandlerStats {
			if h.core.Load() != c {
				return nil // it has moved
			}
			st := h.statistics(c)
			return &st
		})
		if err != nil && h.core.Load() == owner {
			return HandlerStats{}, err
		}
		if st != nil {
			return *st, nil
		}
	}
}

func (h *Handler) statistics(c *loop.Core) HandlerStats {
	n := &h.stats
	st := HandlerStats{
		State: h.state.String(), Core: c.ID(), Opens: n.opens,
		MessagesIn: n.messagesIn, MessagesOut: n.messagesOut, BytesIn: n.bytesIn, BytesOut: n.bytesOut,
		AcksIn: n.acksIn, AcksOut: n.acksOut, Requeued: n.requeued, Duplicates: n.duplicates, Gaps: n.gaps,
		UnaskedAcks: n.unaskedAcks, ControlPauses: n.controlPauses, Posted: n.posted, PostingMisses: n.postingMisses,
	}
	st.InSeq, st.OutSeq = h.inSeq, h.outSeq
	st.Queued, st.Sent, st.AckLag = h.queue.n, h.sent.n, h.unacked
	st.Paused = h.paused.Load()
	st.Keepalives, st.QueueFull = h.seen, h.full.Load()
	if h.sock != nil {
		st.Receive, st.ReceiveWhy = h.sock.Receives()
		st.Writing, st.Throttled = h.writing() > 0, h.sock.Stopped()
		st.Unfinished, st.Quiet = int64(h.framer.frame().held()), h.sock.Quiet()
	}
	if h.posts != nil {
		st.Postings = len(h.posts.armed)
	}
	if h.throttles != nil {
		st.Reserved = h.throttles.Held()
	}
	return st
}

// Receives is how the handler's present socket receives, and why; both are empty without
// one. It may change at any moment. Any goroutine, a core's too.
func (h *Handler) Receives() (loop.ReceiveMode, loop.Why) { return h.receives.Receives() }

// CoreStats are the counters of one core since its start, and of the handlers on it.
type CoreStats struct {
	loop.CoreStats
	Counts
}

// Counts are the counters of the handlers of one core.
type Counts struct {
	MessagesIn  uint64 `json:"messages_in"`
	MessagesOut uint64 `json:"messages_out"`
	Aborted     uint64 `json:"aborted"`  // frames that their sender aborted
	TooSlow     uint64 `json:"too_slow"` // connections ended, as a message came, or was taken, too slowly
	// ControlPauses are the times that a connection was not read for a while, as it
	// brought too many frames without use.
	ControlPauses uint64 `json:"control_pauses"`
	GivenUp       uint64 `json:"given_up"` // sockets given up, as a full receive budget might hold back acks
	EarlyEvents   uint64 `json:"early_events"`
	MovedHere     uint64 `json:"moved_here"`
	MovedAway     uint64 `json:"moved_away"`

	Latency Latencies `json:"latency"`
}

// StatsOf is Core.Stats with the counters of the handlers.
func StatsOf(c *loop.Core) (CoreStats, error) {
	st, counts, err := loop.StatsAnd(c, func(c *loop.Core) Counts { return localOf(c).counts })
	return CoreStats{st, counts}, err
}

// countsOf are the counters of the handlers on c. The counters of a core that is gone do not
// change any more, as any goroutine reads them: later counts are dropped. On the core, or
// after its end.
func countsOf(c *loop.Core) *Counts {
	if c.Gone() {
		return new(Counts)
	}
	return &localOf(c).counts
}
