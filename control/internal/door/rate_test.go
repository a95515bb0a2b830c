package door

import (
	"net/netip"
	"testing"
	"time"
)

// clock is a time that the test moves.
type clock struct {
	now    time.Time
	timers []timer
}

type timer struct {
	at time.Time
	f  func()
}

func (c *clock) Now() time.Time { return c.now }

func (c *clock) AfterFunc(d time.Duration, f func()) func() bool {
	c.timers = append(c.timers, timer{c.now.Add(d), f})
	return func() bool { return false }
}

// pass lets time pass, with what is due in it.
func (c *clock) pass(d time.Duration) {
	end := c.now.Add(d)
	for {
		next := -1
		for i, t := range c.timers {
			if !t.at.After(end) && (next < 0 || t.at.Before(c.timers[next].at)) {
				next = i
			}
		}
		if next < 0 {
			c.now = end
			return
		}
		t := c.timers[next]
		c.timers = append(c.timers[:next], c.timers[next+1:]...)
		c.now = t.at
		t.f()
	}
}

// paced is a door through which 10 of a source may come to nothing in a second, and 4
// at once, and in whose lines there is room for 5 for two seconds.
func paced() (*Door, *clock) {
	c := &clock{now: start}
	cfg := Shares(1000)
	cfg.Rate = Rate{PerSecond: 10, Burst: 4, Line: 5, Longest: 2 * time.Second, Kept: 8, Clock: c}
	return New(cfg), c
}

// visitor is a guest, and whether it has begun and had to go.
type visitor struct {
	*Guest
	begun, evicted bool
}

// visit lets somebody in who may have to wait.
func visit(t *testing.T, d *Door, c *clock, from netip.Addr) *visitor {
	t.Helper()
	g, cause := d.Admit(from, c.now)
	if g == nil {
		t.Fatalf("%v is refused: %v", from, cause)
	}
	v := &visitor{Guest: g}
	g.Begin(func() {
		v.begun = true
		g.OnEvict(func() {
			if v.evicted {
				t.Error("it is told twice that it has to go")
			}
			v.evicted = true
		})
	})
	return v
}

// visits lets n of a source in.
func visits(t *testing.T, d *Door, c *clock, from netip.Addr, n int) (all []*visitor) {
	t.Helper()
	for range n {
		all = append(all, visit(t, d, c, from))
	}
	return all
}

// fail has n of a source come to nothing at once.
func fail(t *testing.T, d *Door, c *clock, from netip.Addr, n int) {
	t.Helper()
	for i, v := range visits(t, d, c, from, n) {
		if !v.begun {
			t.Fatalf("%d of %d wait", n-i, n)
		}
		v.Failed(c.now)
		v.Leave()
	}
}

var (
	bad       = ip(192, 0, 2, 1)
	neighbour = ip(192, 0, 2, 2)
	other     = ip(198, 51, 100, 1)
)

// Matrix: AIM-05
func TestInTheLongRunAsManyComeToNothingAsTheRateSays(t *testing.T) {
	for _, outcome := range []struct {
		name string
		end  func(*Door, *clock, *visitor)
	}{
		{"failed handshakes", func(_ *Door, _ *clock, v *visitor) { v.Leave() }},
		{"useless connections", func(d *Door, c *clock, v *visitor) {
			v.Passed()
			v.Leave()
			d.CameToNothing(bad, c.now)
		}},
	} {
		t.Run(outcome.name, func(t *testing.T) {
			d, c := paced()
			begun := 0
			const seconds = 20
			for range seconds * 1000 { // one each millisecond
				g, _ := d.Admit(bad, c.now)
				if g != nil {
					g.Begin(func() {
						begun++
						outcome.end(d, c, &visitor{Guest: g})
					})
				}
				c.pass(time.Millisecond)
			}
			if most := 4 + 10*(seconds+2); begun > most || begun < 10*(seconds-2) {
				t.Errorf("%d began in %d s, want at most %d", begun, seconds, most)
			}
			n := d.Counters()
			if d.Inside() > 5 || n.Rate == 0 || int(n.Rate)+begun+d.Waiting() < seconds*1000-int(n.Evicted) {
				t.Errorf("%d inside, %d wait, %+v", d.Inside(), d.Waiting(), n)
			}
		})
	}
}

// Nor where the next look is for one who came before both.
func TestAShortWaitDoesNotLastAsLongAsThatOfAnotherSource(t *testing.T) {
	for _, order := range [][]netip.Addr{{bad, other}, {ip(203, 0, 113, 1), other, bad}} {
		d, c := paced()
		last := make(map[netip.Addr]*visitor)
		for _, from := range order {
			owed := 4 // for 100 ms
			if from == bad {
				owed = 20 // for a second
			}
			for range owed {
				d.CameToNothing(from, c.now)
			}
			last[from] = visit(t, d, c, from)
			if len(order) == 3 && len(last) == 1 {
				c.pass(50 * time.Millisecond)
			}
		}
		if c.pass(99 * time.Millisecond); last[other].begun {
			t.Error("the short one begins too early")
		}
		if c.pass(2 * time.Millisecond); !last[other].begun || last[bad].begun {
			t.Errorf("%v: behind 101 ms: the short one %v, the long one %v", order, last[other].begun, last[bad].begun)
		}
		if c.pass(900 * time.Millisecond); last[bad].begun {
			t.Error("the long one begins too early")
		}
		if c.pass(100 * time.Millisecond); !last[bad].begun {
			t.Error("the long one never begins")
		}
		for range 20 {
			d.CameToNothing(neighbour, c.now)
		}
		if c.pass(1200 * time.Millisecond); !visit(t, d, c, neighbour).begun {
			t.Error("it owes more than there can be")
		}
	}
}

func TestAClockThatIsSetBackKeepsNobodyWaiting(t *testing.T) {
	d, c := paced()
	fail(t, d, c, bad, 4)
	c.now = c.now.Add(-time.Hour)
	v := visit(t, d, c, bad)
	if c.pass(1200 * time.Millisecond); !v.begun || v.evicted {
		t.Errorf("begun %v, has to go %v", v.begun, v.evicted)
	}
}

func TestALineHasItsBoundAndWhoWaitsTooLongIsEnded(t *testing.T) {
	d, c := paced()
	fail(t, d, c, bad, 4)
	line := visits(t, d, c, bad, 5)
	if g, cause := d.Admit(bad, c.now); g != nil || cause != TooMany || d.Counters().Rate != 1 {
		t.Fatalf("one more is let in: %v, %+v", cause, d.Counters())
	}
	for range 30 { // what others of it do keeps the line where it is
		for range 20 {
			d.CameToNothing(bad, c.now)
		}
		c.pass(100 * time.Millisecond)
	}
	for i, v := range line {
		if !v.begun || !v.evicted {
			t.Errorf("%d: begun %v, has to go %v", i, v.begun, v.evicted)
		}
		v.Leave()
	}
	if d.Inside() != 0 || d.Waiting() != 0 || d.all.leaving != 0 || d.Counters().Evicted != 5 {
		t.Errorf("%d inside, %d wait, %+v", d.Inside(), d.Waiting(), d.Counters())
	}
}

func TestManySourcesOfAPrefixWaitTogether(t *testing.T) {
	d, c := paced()
	for i := range 8 {
		fail(t, d, c, ip(192, 0, 2, byte(10+i)), 2)
	}
	first, second := visit(t, d, c, bad), visit(t, d, c, neighbour)
	if first.begun || second.begun || d.Counters().Waited != 2 {
		t.Fatalf("the prefix has no bound: %+v", d.Counters())
	}
	if v := visit(t, d, c, other); !v.begun {
		t.Error("another prefix waits")
	}
	if c.pass(26 * time.Millisecond); !first.begun || second.begun {
		t.Errorf("behind 26 ms: %v, %v", first.begun, second.begun)
	}
	if c.pass(25 * time.Millisecond); !second.begun {
		t.Error("the second source never has its turn")
	}
	third := visit(t, d, c, neighbour)
	if third.begun {
		t.Error("two have not paid for their prefix")
	}
	if second.Passed(); !third.begun {
		t.Error("a handshake that succeeds does not let another source of the prefix begin")
	}
}

func TestWhatIsKeptOfSourcesIsBoundedAndForgotten(t *testing.T) {
	d, c := paced()
	for i := range 100 {
		fail(t, d, c, ip(10, byte(i), 0, 1), 3)
		if n := len(d.owedBySource.of); n > 8 || n != d.owedBySource.order.Len() {
			t.Fatalf("%d sources are kept", n)
		}
	}
	c.pass(time.Minute)
	fail(t, d, c, other, 1)
	if len(d.owedBySource.of) != 1 || len(d.owedByPrefix.of) != 1 {
		t.Errorf("%d sources and %d prefixes are kept", len(d.owedBySource.of), len(d.owedByPrefix.of))
	}
	c.pass(time.Minute)
	for _, i := range []byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 8} {
		d.CameToNothing(ip(10, i), c.now)
	}
	if of := d.owedBySource.of; len(of) != 8 || of[SourceOf(ip(10, 0))] == nil || of[SourceOf(ip(10, 1))] != nil {
		t.Errorf("kept are %v, want all but the one that was quiet for longest", of)
	}
}

func TestWhoIsEvictedFromALineLeavesIt(t *testing.T) {
	c := &clock{now: start}
	d := New(Config{Most: 2, PerSource: 2, PerPrefix: 2, Patience: time.Second, Grace: time.Second, Rate: Rate{PerSecond: 1, Burst: 1, Line: 5, Longest: time.Second, Kept: 8, Clock: c}})
	fail(t, d, c, bad, 1)
	waits := visit(t, d, c, bad)
	visit(t, d, c, other)
	visit(t, d, c, ip(203, 0, 113, 1))
	if !waits.begun || !waits.evicted || d.Waiting() != 0 {
		t.Errorf("begun %v, has to go %v, %d wait", waits.begun, waits.evicted, d.Waiting())
	}
	waits.Leave()
	if c.pass(time.Second); d.owedBySource.wait(SourceOf(bad), c.now) != 0 {
		t.Error("its wait is charged")
	}
}

func TestNobodyWaitsAtADoorThatIsClosed(t *testing.T) {
	d, c := paced()
	fail(t, d, c, bad, 4)
	waits := visit(t, d, c, bad)
	if d.Close(); !waits.begun {
		t.Error("it waits")
	}
	if g, cause := d.Admit(bad, c.now); g != nil || cause != TooMany {
		t.Errorf("one more waits: %v", cause)
	}
}

// Inside is how many are let in and have neither left nor given way.
func (d *Door) Inside() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all.n
}
