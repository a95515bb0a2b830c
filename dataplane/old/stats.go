package dataplane

import (
	"errors"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/uring"
)

// CoreStats counts what one core did since it started.
type CoreStats struct {
	Core    int    `json:"core"`
	Backend string `json:"backend"`
	Receive string `json:"receive"` // receive mode of its connections
	State   string `json:"state"`   // running, draining, failed or stopped

	Turns        uint64 `json:"turns"`
	SpinHits     uint64 `json:"spin_hits"`   // polls that found work
	SpinMisses   uint64 `json:"spin_misses"` // polls that ended in sleep
	Accepts      uint64 `json:"accepts"`
	AcceptErrors uint64 `json:"accept_errors"`
	Sockets      int64  `json:"sockets"`  // open now
	Handlers     int64  `json:"handlers"` // with an open socket now
	FramesIn     uint64 `json:"frames_in"`
	Aborted      uint64 `json:"aborted"` // frames that their sender gave up
	MessagesIn   uint64 `json:"messages_in"`
	MessagesOut  uint64 `json:"messages_out"`
	BytesIn      uint64 `json:"bytes_in"`
	BytesOut     uint64 `json:"bytes_out"`
	Reads        uint64 `json:"reads"`  // direct reads that brought bytes
	Writes       uint64 `json:"writes"` // gathered writes
	Rearms       uint64 `json:"rearms"` // multishot operations armed again
	Paused       uint64 `json:"paused"` // times a throttle stopped a reader
	EarlyEvents  uint64 `json:"early_events"`
	MovedHere    uint64 `json:"moved_here"`
	MovedAway    uint64 `json:"moved_away"`
	Stray        uint64 `json:"stray"` // completions of sockets that are gone
	PoolInUse    int64  `json:"pool_in_use"`
	PoolKept     int64  `json:"pool_kept"`
	Load         int64  `json:"load"` // connections that it owns, open or not
	// Stalls are the times that the core was found standing still with work.
	// While it is Stalled, nothing but Core, State, Stalls, Turns and Load is known.
	// The same holds for a core that has Failed: the error of its driver.
	Stalls  uint64 `json:"stalls"`
	Stalled bool   `json:"stalled,omitempty"`
	Failed  string `json:"failed,omitempty"`
	Spent   Spent  `json:"spent"`

	Driver uring.Stats `json:"driver"`
}

// Stats takes a snapshot of the core. Any goroutine but the core's; it waits
// for the core's next turn, but not for that of a stalled one.
func (c *Core) Stats() (CoreStats, error) {
	st, err := ask(c, func(c *Core) CoreStats {
		st := c.stats
		st.Core, st.Backend, st.Receive = c.id, string(c.info.Backend), string(c.receive)
		st.PoolInUse, st.PoolKept = c.pool.inUse, c.pool.kept
		st.Driver = c.drv.Stats()
		return st
	})
	st.Load, st.Stalls, st.State = c.load.Load(), c.vitals.stalls.Load(), c.State().String()
	failure := c.vitals.failure.Load()
	if failure != nil {
		st.Failed = *failure
	}
	if stalled := errors.Is(err, ErrStalled); stalled || err != nil && failure != nil {
		st.Core, st.Backend, st.Receive = c.id, string(c.info.Backend), string(c.receive)
		st.Turns, st.Stalled, err = c.vitals.turns.Load(), stalled, nil
	}
	return st, err
}

// HandlerStats counts over all sockets of one handler.
type HandlerStats struct {
	State       string     `json:"state"`
	Core        int        `json:"core"`
	Opens       uint64     `json:"opens"` // times that it went open
	MessagesIn  uint64     `json:"messages_in"`
	MessagesOut uint64     `json:"messages_out"`
	BytesIn     uint64     `json:"bytes_in"`
	BytesOut    uint64     `json:"bytes_out"`
	AcksIn      uint64     `json:"acks_in"`
	AcksOut     uint64     `json:"acks_out"`
	Requeued    uint64     `json:"requeued"`
	Duplicates  uint64     `json:"duplicates"` // received again and dropped
	Gaps        uint64     `json:"gaps"`       // sequence numbers that were skipped
	InSeq       uint64     `json:"in_seq"`
	OutSeq      uint64     `json:"out_seq"`
	Queued      int        `json:"queued"`     // messages to be sent
	Sent        int        `json:"sent"`       // messages to be acknowledged
	QueueFull   uint64     `json:"queue_full"` // times that Send found no room
	AckLag      uint64     `json:"ack_lag"`    // received and not acknowledged
	Writing     bool       `json:"writing"`    // a write is in flight
	Throttled   bool       `json:"throttled"`
	Keepalives  Keepalives `json:"keepalives"`
}

// Stats takes a snapshot. Any goroutine but a core's; it waits for the owning
// core's next turn, and returns ErrStalled if that is not to be expected.
func (h *Handler) Stats() (HandlerStats, error) {
	for {
		owner := h.core.Load()
		st, err := ask(owner, func(c *Core) *HandlerStats {
			if h.core.Load() != c {
				return nil // it has moved
			}
			st := h.snapshot(c)
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

func (h *Handler) snapshot(c *Core) HandlerStats {
	st := h.stats
	st.State, st.Core = h.state.String(), c.id
	st.InSeq, st.OutSeq = h.inSeq, h.outSeq
	st.Queued, st.Sent, st.AckLag = h.queue.n, h.sent.n, h.owed
	st.Keepalives, st.QueueFull = h.seen, h.full.Load()
	if h.sock != nil {
		st.Writing, st.Throttled = h.sock.writing, h.sock.paused != nil
	}
	return st
}

// ackClock lets any goroutine see when the peer last answered a keepalive.
type ackClock struct{ at atomic.Uint64 }

func (a *ackClock) set(t Timestamp) { a.at.Store(uint64(t.Sec)<<32 | uint64(t.Nsec)) }

func (a *ackClock) get() Timestamp {
	v := a.at.Load()
	return Timestamp{uint32(v >> 32), uint32(v)}
}

// LastKeepaliveAck is the time stamp of our last keepalive that the peer
// answered, zero if there is none. Any goroutine.
func (h *Handler) LastKeepaliveAck() Timestamp { return h.acks.get() }
