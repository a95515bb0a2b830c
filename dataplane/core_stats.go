package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

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
