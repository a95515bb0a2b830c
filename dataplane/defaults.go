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

// pace has the times and rates of OpenOptions, with the defaults; 0 stands for no bound. It
// never changes.
type pace struct {
	idleAfter, keepaliveEvery, keepaliveTimeout time.Duration

	leastRate    int64
	messageGrace time.Duration
	controlRate  int
	alignFrom    int
}

func paceOf(o *OpenOptions) pace {
	return pace{
		idleAfter:      bound(o.IdleAfter, DefaultIdleAfter),
		keepaliveEvery: o.KeepaliveEvery, keepaliveTimeout: o.KeepaliveTimeout,
		leastRate:    bound(o.LeastRate, DefaultLeastRate),
		messageGrace: bound(o.MessageGrace, DefaultMessageGrace),
		controlRate:  bound(o.ControlRate, DefaultControlRate),
		alignFrom:    o.AlignFrom,
	}
}

// bound is a configured bound n in the form of a handler: the default for 0, and 0 (no bound)
// for a negative n.
func bound[T int | int64 | time.Duration](n, byDefault T) T {
	if n == 0 {
		return byDefault
	}
	return max(n, 0)
}
