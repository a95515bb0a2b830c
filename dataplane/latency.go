package dataplane

import "math/rand/v2"

// Of every so many messages (Config.TimeEvery) one is timed on its way: by the clock when
// Send takes it, when it goes into a write, and when its ack comes. What that finds
// belongs to the core that finds it (CoreStats.Latency).

// timing is how far a message that is timed has come.
type timing uint8

const (
	untimed timing = iota
	queuedAt
	writtenAt
)

// beginTiming decides whether m is timed. Any goroutine.
func (h *Handler) beginTiming(m *Message) {
	m.timing = untimed
	if cfg := h.core.Load().Config(); cfg.TimeEvery > 0 && rand.Uint32N(uint32(cfg.TimeEvery)) == 0 {
		m.timing, m.since = queuedAt, cfg.Now()
	}
}

// timeWrite notes that m goes into a write. A message that goes out again keeps the time
// of its first write. On the core.
func (m *Message) timeWrite(c *Core) {
	if m.timing == queuedAt {
		now := c.Config().Now()
		c.Counts().Latency.Queue.Add(now - m.since)
		m.timing, m.since = writtenAt, now
	}
}

// timeAck notes that the ack of m has come. On the core.
func (m *Message) timeAck(c *Core) {
	if m.timing == writtenAt {
		c.Counts().Latency.Ack.Add(c.Config().Now() - m.since)
	}
}
