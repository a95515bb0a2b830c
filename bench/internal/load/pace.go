package load

import "time"

// pace issues requests at a rate that does not depend on the replies: an open loop. A
// request that finds no free place waits for one, and its latency counts from when it
// was due. So a server that stands still is charged for all that came meanwhile.
type pace struct {
	every time.Duration // between two requests; 0: each reply brings the next request
	due   time.Duration // when the next one is
	free  []*conn       // a ring of places for requests, longest free first
	first int
	count int
}

// newPace has a place for each request that may be open.
func newPace(rate float64, active []*conn, depth int) pace {
	if rate == 0 {
		return pace{}
	}
	p := pace{every: time.Duration(float64(time.Second) / rate), free: make([]*conn, len(active)*depth)}
	for range depth {
		for _, c := range active {
			p.release(c)
		}
	}
	return p
}

// on says whether requests have a rate.
func (p *pace) on() bool { return p.every > 0 }

// release gives back a place of c.
func (p *pace) release(c *conn) {
	p.free[(p.first+p.count)%len(p.free)] = c
	p.count++
}

// next returns the connection of a request that is due, and when it was; nil: there is
// none, or no place.
func (p *pace) next(now time.Duration) (*conn, time.Duration) {
	if p.count == 0 || p.due > now {
		return nil, 0
	}
	c, due := p.free[p.first], p.due
	p.first = (p.first + 1) % len(p.free)
	p.count--
	p.due += p.every
	return c, due
}

// issueDue issues all requests that are due and have a place.
func (l *Load) issueDue() error {
	for now := l.meter.now(); ; {
		c, due := l.pace.next(now)
		if c == nil {
			return nil
		}
		l.issue(c, due)
		if err := l.flush(c); err != nil {
			return err
		}
	}
}
