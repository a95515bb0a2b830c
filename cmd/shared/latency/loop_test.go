package latency

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pass lets time of the bubble pass.
func pass(d time.Duration) {
	ctx, stop := context.WithTimeout(context.Background(), d)
	defer stop()
	<-ctx.Done()
}

func TestAClosedLoopCountsTheCallsOfEachKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, err := Loop(3, 10*time.Second, func(i int) (string, error) {
			if i == 0 {
				pass(2 * time.Second)
				return "slow", nil
			}
			pass(time.Second)
			return "fast", nil
		})
		if err != nil || calls.Took != 10*time.Second || calls.Of("slow").Count() != 5 || calls.Of("fast").Count() != 20 || calls.Of("none").Count() != 0 {
			t.Errorf("%d slow, %d fast in %v, %v", calls.Of("slow").Count(), calls.Of("fast").Count(), calls.Took, err)
		}
		if p := calls.Of("slow").Quantile(0.5).Round(100 * time.Millisecond); p != 2*time.Second || calls.Rate("fast") != 2 {
			t.Errorf("the slow ones took %v, %v fast ones in a second", p, calls.Rate("fast"))
		}
	})
}

func TestACallThatFailsEndsItsOwnLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, n := errors.New("failed"), atomic.Int64{}
		calls, err := Loop(2, 5*time.Second, func(i int) (string, error) {
			pass(time.Second)
			n.Add(1)
			if i == 0 {
				return "one", failed
			}
			return "one", nil
		})
		if !errors.Is(err, failed) || n.Load() != 6 || calls.Of("one").Count() != 6 {
			t.Errorf("%d calls, %d counted, %v", n.Load(), calls.Of("one").Count(), err)
		}
	})
}
