package latency

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
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

// Line is the rate of the calls of a kind, and how long they took, in words.
func (c *Calls) Line(kind string) string {
	times := c.Of(kind)
	p50, p99 := quantity.Duration(times.Quantile(0.5)), quantity.Duration(times.Quantile(0.99))
	return fmt.Sprintf("%s/s, p50 %s, p99 %s", quantity.Count(c.Rate(kind)), p50, p99)
}

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
