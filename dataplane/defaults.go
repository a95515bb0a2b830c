package dataplane

import "time"

// Defaults of HandlerConfig and OpenOptions. A zero field stands for its default
// here as in package control, a negative one for no bound.
const (
	DefaultQueueBytes    = 256 << 20
	DefaultQueueMessages = 256 << 10
	DefaultIdleAfter     = 900 * time.Second
	DefaultLeastRate     = 64 << 10
	DefaultMessageGrace  = 10 * time.Second
	DefaultControlRate   = 1000
)

// withDefaults fills in the defaults; 0 stands for no bound from then on.
func (c HandlerConfig) withDefaults() HandlerConfig {
	c.QueueBytes = bound(c.QueueBytes, DefaultQueueBytes)
	c.QueueMessages = bound(c.QueueMessages, DefaultQueueMessages)
	return c
}

// withDefaults fills in the defaults; 0 stands for no bound from then on.
func (o OpenOptions) withDefaults() OpenOptions {
	o.IdleAfter = bound(o.IdleAfter, DefaultIdleAfter)
	o.LeastRate = bound(o.LeastRate, DefaultLeastRate)
	o.ControlRate = bound(o.ControlRate, DefaultControlRate)
	o.MessageGrace = bound(o.MessageGrace, DefaultMessageGrace)
	return o
}

// bound is what a handler keeps of a configured n: the default for 0, and 0, which
// is none, for a negative one.
func bound[T int | int64 | time.Duration](n, byDefault T) T {
	if n == 0 {
		return byDefault
	}
	return max(n, 0)
}
