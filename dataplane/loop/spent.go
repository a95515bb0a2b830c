package loop

import "time"

// spentEvery is how many turns there are for one that is timed. It is prime, so
// that a periodic load is not in step with it.
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
		c.timedUntil = c.cfg.Now()
	}
}

// BeginDispatch says that a framer is about to call the user, and EndDispatch
// that it has done so: the time between them is Spent.Dispatch, in a turn that is
// timed. On the core.
func (c *Core) BeginDispatch() {
	c.assertOwner()
	if c.timing {
		c.chargeTime(&c.stats.Spent.Receive)
	}
}

// EndDispatch is the end of what BeginDispatch began.
func (c *Core) EndDispatch() {
	c.assertOwner()
	if c.timing {
		began := c.timedUntil
		c.chargeTime(&c.stats.Spent.Dispatch)
		c.stats.Latency.Dispatch.Add(c.timedUntil - began)
	}
}

// chargeTime charges the time since the last one to part. Only if c.timing.
func (c *Core) chargeTime(part *time.Duration) {
	now := c.cfg.Now()
	*part += (now - c.timedUntil) * spentEvery
	c.timedUntil = now
}
