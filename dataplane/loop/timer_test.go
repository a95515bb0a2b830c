package loop

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Matrix: KA-11
func TestTimersFireLikeASortedList(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ts timers
		var fired *Timer
		all, armed := make([]Timer, 40), map[*Timer]time.Duration{}
		for i := range all {
			all[i].Fire = func(*Core, time.Duration) { fired = &all[i] }
		}
		check := func() {
			t.Helper()
			next, ok := ts.next()
			if ok != (len(armed) > 0) || ok && next != slices.Min(slices.Collect(maps.Values(armed))) {
				t.Fatalf("seed %d: the next deadline is %v, %v of %v", seed, next, ok, armed)
			}
			for i := range all {
				if _, want := armed[&all[i]]; all[i].Armed() != want {
					t.Fatalf("seed %d: timer %d armed=%v, want %v", seed, i, all[i].Armed(), want)
				}
			}
		}
		now := time.Duration(0)
		for range 2000 {
			one := &all[rng.IntN(len(all))]
			switch rng.IntN(4) {
			case 0, 1:
				armed[one] = now + time.Duration(rng.IntN(100))
				ts.arm(one, armed[one])
			case 2:
				ts.stop(one)
				delete(armed, one)
			case 3:
				now += time.Duration(rng.IntN(20))
				for next, ok := ts.next(); ok && next <= now; next, ok = ts.next() {
					if ts.expire(nil, now, 1); armed[fired] != next {
						t.Fatalf("seed %d: a timer of %v has fired in place of one of %v", seed, armed[fired], next)
					}
					delete(armed, fired)
					check()
				}
				fired = nil
				if ts.expire(nil, now, 1); fired != nil {
					t.Fatalf("seed %d: a timer has fired too early", seed)
				}
			}
			check()
		}
	}
}

// A core sleeps until its first timer, and over none that is due, of which a turn fires some only.
// Its clock may stand anywhere.
// Matrix: KA-11
func TestACoreSleepsUntilItsFirstTimer(t *testing.T) {
	begin := time.Now()
	p := newPlane(t, Config{
		Cores: 1, Driver: uring.Config{Backend: uring.Epoll}, Now: func() time.Duration { return time.Hour + time.Since(begin) },
		Started: func(c *Core) error {
			if c.Now() < time.Hour {
				t.Errorf("a core begins at %v", c.Now())
			}
			return nil
		},
	})
	const due = 2 * timersPerTurn
	turns := make(chan uint64, due+1)
	must(t, p.Core(0).Do(func(c *Core) {
		first := c.stats.Turns
		fire := func(c *Core, _ time.Duration) { turns <- c.stats.Turns - first }
		for range due {
			c.Arm(&Timer{Fire: fire}, c.Now()-1)
		}
		c.Arm(&Timer{Fire: fire}, c.Now()+20*time.Millisecond)
	}))
	var took [due + 1]uint64
	for i := range took {
		took[i] = await(t, turns)
	}
	if took[0] == took[timersPerTurn] || took[due] > 10 {
		t.Errorf("it made %d turns until a timer of 20 ms, %d and %d for those that were due", took[due], took[0], took[timersPerTurn])
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
