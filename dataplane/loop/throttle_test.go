package loop

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// A message without payload takes memory, too.
func TestTheThrottleThatIsFullIsNamedWithTheUnitsThatAFrameWaitsFor(t *testing.T) {
	frames, bytes, shared := NewThrottle(10), NewThrottle(1000), NewThrottle(500)
	ts := &Throttles{Frames: frames, Bytes: bytes, Shared: shared}
	a, full := ts.Acquire(new(Socket), 400)
	if full != nil {
		t.Fatal("refused within the limits")
	}
	for _, one := range []struct {
		lower *Throttle // to its limit
		limit int64
		size  int64
		units int64
	}{{shared, 655, 0, MinShared}, {bytes, 500, 200, 200}, {frames, 1, 200, 1}} {
		one.lower.SetLimit(one.limit)
		if _, full := ts.Acquire(new(Socket), one.size); full != one.lower || ts.Units(full, one.size) != one.units {
			t.Fatalf("another throttle is full than expected, or it waits for %d units, want %d", ts.Units(full, one.size), one.units)
		}
	}
	a.Release()
	a.Release() // once is enough
	if n := [...]int64{frames.Used(), bytes.Used(), shared.Used()}; n != [3]int64{} {
		t.Fatalf("%d did not come back", n)
	}
}

// Matrix: XC-15
func TestThrottleUnderContentionNeverExceedsItsLimit(t *testing.T) {
	th := NewThrottle(100)
	var running sync.WaitGroup
	for g := range 4 {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for range 20000 {
				n := 1 + rng.Int64N(60)
				if th.acquire(n, false) {
					if used := th.Used(); used > 100 {
						t.Errorf("%d of 100 units are taken", used)
					}
					th.release(n)
				}
			}
		})
	}
	running.Wait()
	if th.Used() != 0 {
		t.Errorf("%d units are lost", th.Used())
	}
}

// The next one in line may need less than the one that leaves or ends, and hears of it.
// Matrix: TH-04
func TestASocketThatLeavesItsCoreLeavesTheLine(t *testing.T) {
	for _, ends := range []bool{false, true} {
		b, th := newBed(t, nil), NewThrottle(10)
		if !th.acquire(5, false) {
			t.Fatal("no room")
		}
		first, _ := carried(b, &lengths{})
		second, _ := carried(b, &lengths{})
		first.Pause(&Throttles{Bytes: th}, th, 9, false)
		second.Pause(&Throttles{Bytes: th}, th, 3, false)
		if b.settle(); th.Waiting() != 2 {
			t.Fatalf("%d wait", th.Waiting())
		}
		left := ends
		if ends {
			first.Fault(ErrReset)
		} else {
			first.Detach(func(_ *Core, d *Detached) { left = d != nil })
		}
		if b.settle(); !left || second.Stopped() || th.Waiting() != 0 {
			t.Errorf("ends %v: left: %v, the next one is stopped: %v, %d wait", ends, left, second.Stopped(), th.Waiting())
		}
	}
}

// When unfinished frames hold all units, one of them goes on beyond the limit. If that ends, or leaves
// its core, another one does, for which hardly a unit has come back.
// Matrix: TH-04
func TestTheFrameThatGoesOnBeyondALimitIsFollowedByAnother(t *testing.T) {
	for name, end := range map[string]func(*Charge, *Socket){"ends": (*Charge).Abandon, "leaves": (*Charge).Yield} {
		b, th := newBed(t, nil), NewThrottle(100)
		var ss [2]*Socket
		var frames [2]Charge
		for i, n := range [2]int64{10, 90} {
			ss[i], _ = carried(b, &lengths{})
			frames[i], _ = (&Throttles{Bytes: th}).Begin(ss[i])
			_, _ = frames[i].Reserve(ss[i], n)
		}
		for i, s := range ss {
			s.Pause(frames[i].from, th, 20, true)
		}
		if b.settle(); ss[0].Stopped() || !ss[1].Stopped() {
			t.Fatalf("stopped: the first %v, the second %v", ss[0].Stopped(), ss[1].Stopped())
		}
		end(&frames[0], ss[0])
		if b.settle(); ss[1].Stopped() {
			t.Errorf("it %s: the other one does not go on", name)
		}
	}
}

// Unfinished frames come first, and a connection that tries in vain keeps its place.
// Matrix: TH-04
func TestTheLineOfAThrottleKeepsItsOrder(t *testing.T) {
	b, th, order := newBed(t, nil), NewThrottle(10), ""
	th.acquire(10, false)
	wait := func(name string, begun, again bool) *waiter {
		w := &waiter{core: b.c, need: 1, begun: begun}
		w.task.Run = func(*Core) {
			order += name
			th.leave(w)
			th.notify()
		}
		th.wait(w, again)
		return w
	}
	wait("d", false, true)
	wait("e", false, false)
	c := wait("c", false, false)
	wait("f", false, false)
	head := wait("", false, true)
	th.leave(c) // from the middle
	th.wait(c, true)
	th.leave(head)
	wait("b", false, true)
	th.leave(wait("", false, false))
	wait("g", false, false)
	wait("a", true, false)
	th.release(10)
	b.settle()
	wait("h", false, false) // there is room
	if b.settle(); order != "abcdefgh" || th.Waiting() != 0 {
		t.Errorf("they go on as %q, and %d wait", order, th.Waiting())
	}
}

// The connection's own share may become free just before the socket stops: the others may hold the
// rest for ever.
// Matrix: TH-04
func TestAShareThatComesBackBeforeTheStopIsNotMissed(t *testing.T) {
	for _, begun := range []bool{false, true} {
		b, th := newBed(t, nil), NewThrottle(2000)
		if !th.acquire(2000, false) {
			t.Fatal("no room")
		}
		s, _ := carried(b, &lengths{})
		ts := &Throttles{Shared: th, Share: 300}
		held, full := ts.Acquire(s, MinShared)
		if full != nil {
			t.Fatal("its own share is full")
		}
		unfinished := Charge{from: ts, held: heldUnfinished}
		if _, full = ts.Acquire(s, MinShared); begun {
			ts.held.Add(ts.Share - MinShared) // by another message
			_, full = unfinished.Reserve(s, MinShared)
			ts.held.Add(MinShared - ts.Share)
		}
		if full != th {
			t.Fatal("it has more than its share")
		}
		held.Release()
		s.Pause(ts, th, MinShared, begun)
		if b.settle(); s.Stopped() || th.Waiting() != 0 {
			t.Errorf("begun: %v, stopped: %v, %d wait", begun, s.Stopped(), th.Waiting())
		}
		s.Pause(ts, th, MinShared, begun) // without a take, as for a message that grows
		if b.settle(); !s.Stopped() {
			t.Errorf("begun: %v, and an old refusal ends the next stop", begun)
		}
	}
}

// Whatever becomes of frames, each unit of a budget is counted where it is held, and comes back. Beyond the
// limit a connection has no more than its share, which it gets while the reserve lasts.
// Matrix: TH-04
func TestEveryUnitOfABudgetIsCountedUntilItComesBack(t *testing.T) {
	type conn struct {
		Throttles
		s Socket
	}
	type frame struct {
		of int // which of conns
		c  Charge
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		count, bytes, shared := NewThrottle(30), NewThrottle(20_000), NewThrottle(4000)
		conns, all := make([]conn, 4), []*frame{}
		for i := range conns {
			conns[i].Frames, conns[i].Bytes, conns[i].Shared, conns[i].Share = count, bytes, shared, 600
		}
		// passes: the share of one has room for n more units.
		passes := func(one *conn, n int64) bool {
			return n > 0 && one.Held()+n <= one.Share && shared.reserved.Load()+n <= shared.Reserve()
		}
		for step := range 400 {
			f, n, got := &frame{of: rng.IntN(len(conns))}, int64(rng.IntN(900)), int64(0)
			if len(all) > 0 && rng.IntN(4) > 0 {
				f = all[rng.IntN(len(all))]
			}
			one, own, full := &conns[f.of], f.c.own, (*Throttle)(nil)
			switch what := rng.IntN(4); {
			case f.c.from == nil && what < 2: // a new frame
				could := passes(one, sharedUnits(n))
				if f.c, full = one.Acquire(&one.s, n); full == shared && could {
					t.Fatalf("seed %d, step %d: no share for %d bytes", seed, step, n)
				}
			case f.c.from == nil:
				f.c, _ = one.Begin(&one.s)
			case f.c.Unfinished() && what < 2:
				could := passes(one, min(one.Share-one.Held(), n))
				if got, full = f.c.Reserve(&one.s, n); got > n || full == shared && n > 0 && could {
					t.Fatalf("seed %d, step %d: reserved %d of %d", seed, step, got, n)
				}
			case f.c.Unfinished():
				bytes.finisher.Store(&one.s.waiter)
				shared.finisher.Store(&one.s.waiter)
				switch rng.IntN(3) {
				case 0:
					f.c.Yield(&one.s)
				case 1:
					f.c.Complete(&one.s, rng.Int64N(f.c.bytes+1))
				default:
					f.c.Abandon(&one.s)
				}
				if bytes.finisher.Load() != nil || shared.finisher.Load() != nil {
					t.Fatalf("seed %d, step %d: no other frame may go on", seed, step)
				}
			case f.c.held != heldNothing && what == 0:
				f.c.Raise(f.c.bytes + n)
			case f.c.held != heldNothing:
				f.c.Release()
			case what == 0:
				f.c.Reacquire()
			}
			if f.c.own > own && one.Held() > one.Share {
				t.Fatalf("seed %d, step %d: %d bytes with its share of %d", seed, step, one.Held(), one.Share)
			}
			own, back := f.c.own, rng.Int64N(got+1)
			if f.c.Unreserve(back); f.c.own != max(own-int32(back), 0) {
				t.Fatalf("seed %d, step %d: %d of the reserve left of %d, with %d back", seed, step, f.c.own, own, back)
			}
			if f.c.from != nil && !slices.Contains(all, f) {
				all = append(all, f)
			}
			var want [10]int64
			for _, f := range all {
				units := sharedUnits(f.c.bytes)
				switch f.c.held {
				case heldNothing:
					continue
				case heldUnfinished:
					units = f.c.bytes
					want[3] += units
					fallthrough
				case heldWithOwn:
					want[4] += int64(f.c.own)
				}
				want[0], want[1], want[2] = want[0]+1, want[1]+f.c.bytes, want[2]+units
				want[6+f.of] += units
			}
			want[5] = want[3]
			is := [10]int64{count.Used(), bytes.Used(), shared.Used(), shared.Unfinished(), shared.reserved.Load(), bytes.Unfinished()}
			for i := range conns {
				is[6+i] = conns[i].Held()
			}
			if is != want || is[4] > shared.Reserve() {
				t.Fatalf("seed %d, step %d: frames, bytes, shared, unfinished, reserved, unfinished bytes, held by each connection: %d, want %d", seed, step, is, want)
			}
		}
	}
}
