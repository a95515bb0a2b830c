package dataplane

import (
	"math"
	"math/rand/v2"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// One message in Config.TimeEvery is timed on its way: when Send takes it, when it goes into a
// write, and when its ack comes. The times belong to the core that takes them
// (Counts.Latency). So does the time in the dispatcher, for as many messages.

// timing is the progress of a message that is timed.
type timing uint8

const (
	untimed timing = iota
	queuedAt
	writtenAt
)

// beginTiming decides whether m, which the handler holds already, is timed: if the number of
// its messages is the drawn one, modulo TimeEvery (a power of two). Any goroutine.
func (h *Handler) beginTiming(m *Message) {
	m.timing = untimed
	cfg := h.core.Load().Config()
	if cfg.TimeEvery > 0 && uint32(h.held.messages.used.Load())&uint32(cfg.TimeEvery-1) == h.timed.Load() {
		m.timing, m.since = queuedAt, cfg.Now()
	}
}

// drawTimed draws the number of the next timed message, once for all messages that are sent
// together: a random number for each would be a measurable part of the cost of a small one. On
// the core.
func (h *Handler) drawTimed() {
	if every := h.core.Load().Config().TimeEvery; every > 0 {
		h.timed.Store(rand.Uint32N(uint32(every)))
	}
}

// timeWrite notes that m goes into a write. A message that goes out again keeps the time
// of its first write. On the core.
func (m *Message) timeWrite(c *loop.Core) {
	if m.timing == queuedAt {
		now := c.Config().Now()
		countsOf(c).Latency.Queue.Add(now - m.since)
		m.timing, m.since = writtenAt, now
	}
}

// timeAck notes that the ack of m has come. On the core.
func (m *Message) timeAck(c *loop.Core) {
	if m.timing == writtenAt {
		countsOf(c).Latency.Ack.Add(c.Config().Now() - m.since)
	}
}

// dispatchTimed gives a received message to the owner, times that, and draws which message is
// timed next.
func (h *Handler) dispatchTimed(c *loop.Core, m *Message) {
	l, cfg := h.local, c.Config()
	if cfg.TimeEvery <= 0 {
		l.timeNext = math.MaxUint64
		h.owner.Dispatch(h, m)
		return
	}
	l.timeNext = l.counts.MessagesIn + 1 + uint64(rand.Uint32N(2*uint32(cfg.TimeEvery)-1))
	began := cfg.Now()
	h.owner.Dispatch(h, m)
	l.counts.Latency.Dispatch.Add(cfg.Now() - began)
}
