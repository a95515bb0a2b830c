package sessions

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tryPlace is the work of one attempt: it has its place for that long, or gives up before.
func tryPlace(d *dials, at netip.AddrPort, busy *atomic.Int64, patience, takes time.Duration) (most int64, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errSuperseded)
	defer cancel()
	if err := d.enter(ctx, at); err != nil {
		return 0, err
	}
	most = busy.Add(1)
	work, end := context.WithTimeout(context.Background(), takes)
	defer end()
	<-work.Done()
	busy.Add(-1)
	d.leave(at)
	return most, nil
}

// Attempts take and give up at the same moments, too.
func TestNoMoreDialsAtOnceThanAllowedWhoeverGivesUp(t *testing.T) {
	const attempts = 20 * DialsAtOnce
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			var d dials
			var busy, most, gaveUp atomic.Int64
			var all sync.WaitGroup
			rng := rand.New(rand.NewPCG(seed, 1))
			for range attempts {
				patience, takes := time.Duration(1+rng.IntN(40))*time.Millisecond, time.Duration(rng.IntN(5))*time.Millisecond
				all.Go(func() {
					n, err := tryPlace(&d, netip.AddrPort{}, &busy, patience, takes)
					if err != nil {
						gaveUp.Add(1)
					}
					if err != nil && !errors.Is(err, errSuperseded) || n > DialsAtOnce {
						t.Errorf("%v; %d at once", err, n)
					}
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
				})
			}
			all.Wait()
			if most.Load() != DialsAtOnce || gaveUp.Load() == 0 || gaveUp.Load() == attempts || len(d.at) != 0 {
				t.Errorf("seed %d: %d at once, %d gave up, %d lines are left", seed, most.Load(), gaveUp.Load(), len(d.at))
			}
		})
	}
}
