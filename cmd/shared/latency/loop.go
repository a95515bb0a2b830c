package latency

import (
	"cmp"
	"sync"
	"time"
)

// Calls are what Loop has measured.
type Calls struct {
	Took  time.Duration // all of them together, by the clock
	kinds map[string]*Histogram
}

// Of is how long the calls of a kind took each. It is empty if there were none.
func (c *Calls) Of(kind string) *Histogram {
	if h := c.kinds[kind]; h != nil {
		return h
	}
	return New()
}

// Rate is how many calls of a kind there were in a second.
func (c *Calls) Rate(kind string) float64 { return float64(c.Of(kind).Count()) / c.Took.Seconds() }

// Loop is a closed loop of load: each of n goroutines calls f, with its number, one time
// after the other, until d has passed or a call of its own has failed. f says of which kind
// a call was. The error is the first that there was; calls that fail are counted, too.
func Loop(n int, d time.Duration, f func(i int) (kind string, err error)) (c Calls, failed error) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards c.kinds and failed
	c.kinds = map[string]*Histogram{}
	began := time.Now()
	for i := range n {
		all.Go(func() {
			for err := error(nil); err == nil && time.Since(began) < d; {
				var kind string
				sent := time.Now()
				kind, err = f(i)
				took := time.Since(sent)
				mu.Lock()
				if c.kinds[kind] == nil {
					c.kinds[kind] = New()
				}
				c.kinds[kind].Record(took)
				failed = cmp.Or(failed, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	c.Took = time.Since(began)
	return c, failed
}
