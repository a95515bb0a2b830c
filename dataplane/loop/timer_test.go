package loop

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Matrix: KA-11
func TestTimersFireLikeASortedList(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ts timers
		all := make([]*Timer, 40)
		model := map[int]time.Duration{}
		fired := -1
		for i := range all {
			all[i] = &Timer{Fire: func(*Core, time.Duration) { fired = i }}
		}
		now := time.Duration(0)
		for step := range 2000 {
			i := rng.IntN(len(all))
			switch rng.IntN(4) {
			case 0, 1:
				when := now + time.Duration(rng.IntN(100))
				ts.arm(all[i], when)
				model[i] = when
			case 2:
				ts.stop(all[i])
				delete(model, i)
			case 3:
				now += time.Duration(rng.IntN(20))
				for {
					fired = -1
					ts.expire(nil, now, 1)
					if fired < 0 {
						break
					}
					when, armed := model[fired]
					if !armed || when > now {
						t.Fatalf("seed %d step %d: timer %d fired, armed=%v for %v at %v", seed, step, fired, armed, when, now)
					}
					delete(model, fired)
					for j, w := range model {
						if w < when {
							t.Fatalf("seed %d step %d: timer of %v fired before %d of %v", seed, step, when, j, w)
						}
					}
				}
			}
			for j := range all {
				if _, want := model[j]; all[j].Armed() != want {
					t.Fatalf("seed %d step %d: timer %d armed=%v, want %v", seed, step, j, all[j].Armed(), want)
				}
			}
			var times []time.Duration
			for _, w := range model {
				times = append(times, w)
			}
			next, ok := ts.next()
			if ok != (len(times) > 0) || ok && next != slices.Min(times) {
				t.Fatalf("seed %d step %d: next deadline %v %v of %v", seed, step, next, ok, times)
			}
		}
	}
}

// Matrix: KA-11
func TestExpireIsBoundedAndLeavesTheRestForTheNextTurn(t *testing.T) {
	var ts timers
	fired := 0
	for range 100 {
		ts.arm(&Timer{Fire: func(*Core, time.Duration) { fired++ }}, 5)
	}
	for _, want := range []int{30, 60, 90, 100, 100} {
		ts.expire(nil, 5, 30)
		if fired != want {
			t.Fatalf("fired %d, want %d", fired, want)
		}
	}
}

func TestTimersDoNotAllocateOnceWarm(t *testing.T) {
	var ts timers
	tm := Timer{Fire: func(*Core, time.Duration) {}}
	ts.arm(&tm, 1)
	ts.stop(&tm)
	if n := testing.AllocsPerRun(100, func() {
		ts.arm(&tm, 1)
		ts.arm(&tm, 2)
		ts.expire(nil, 3, 1)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
