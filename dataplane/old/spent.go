package dataplane

import "time"

// spentEvery is how many turns go by for one that is timed. It is prime, so
// that no rhythm of the load is in step with it.
const spentEvery = 31

// Spent is where the time of a core went. It is an estimate: one turn of 31 is
// timed, part by part, and stands for all of them, so that the clock is not
// read in the others. In JSON all are nanoseconds.
type Spent struct {
	Tasks    time.Duration `json:"tasks_ns"`    // mailbox and timers
	Send     time.Duration `json:"send_ns"`     // building and submitting writes
	Wait     time.Duration `json:"wait_ns"`     // the system call, sleep included
	Receive  time.Duration `json:"receive_ns"`  // completions: reading and decoding
	Dispatch time.Duration `json:"dispatch_ns"` // in the dispatchers of received messages
}

// beginLaps starts the timing of a turn if it is one that is timed.
func (c *Core) beginLaps() {
	if c.timing = c.stats.Turns%spentEvery == 0; c.timing {
		c.lapAt = c.cfg.Now()
	}
}

// lap charges the time since the last one to part. Only if c.timing.
func (c *Core) lap(part *time.Duration) {
	now := c.cfg.Now()
	*part += (now - c.lapAt) * spentEvery
	c.lapAt = now
}
