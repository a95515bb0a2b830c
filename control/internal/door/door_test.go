package door

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// start is an arbitrary time.
var start = time.Unix(1_000_000, 0)

func after(d time.Duration) time.Time { return start.Add(d) }

func small() *Door {
	return New(Config{Most: 16, PerSource: 4, PerPrefix: 6, Patience: time.Second})
}

// ip is 10.0.0.0 with some of its bytes replaced.
func ip(b ...byte) netip.Addr {
	a := [4]byte{10}
	copy(a[:], b)
	return netip.AddrFrom4(a)
}

// enter lets a guest in and tells when it is evicted.
func enter(t *testing.T, d *Door, from netip.Addr, now time.Time) (g *Guest, evicted *bool) {
	t.Helper()
	g, cause := d.Admit(from, now)
	if g == nil {
		t.Fatalf("%v is refused: %v", from, cause)
	}
	evicted = new(bool)
	g.OnEvict(func() {
		*evicted = true
		g.Leave()
	})
	return g, evicted
}

// crowd lets n guests of as many prefixes in.
func crowd(t *testing.T, d *Door, n int) (guests []*Guest, evicted []*bool) {
	t.Helper()
	for i := range n {
		g, e := enter(t, d, ip(10, byte(i), 0, 1), start)
		guests, evicted = append(guests, g), append(evicted, e)
	}
	return guests, evicted
}

// Matrix: RL-02
func TestWhoIsOverItsShareReplacesItsOwnOldestSilentConnection(t *testing.T) {
	for scope, host := range map[string]func(i int) byte{
		"source": func(int) byte { return 1 },
		"prefix": func(i int) byte { return byte(i) },
	} {
		d := small()
		var gone []*bool
		for i := range 9 {
			_, e := enter(t, d, ip(192, 0, 2, host(i)), start)
			gone = append(gone, e)
		}
		_, other := enter(t, d, ip(198, 51, 100, 1), start)
		for i := range gone {
			enter(t, d, ip(192, 0, 2, host(9+i)), start)
			for j, e := range gone {
				if *e != (j <= i) {
					t.Fatalf("%s: after %d newcomers the connection %d is evicted: %v", scope, i+1, j, *e)
				}
			}
		}
		if *other || d.Inside() != 10 || d.Counters() != (Counters{Evicted: 9}) {
			t.Errorf("%s: another one evicted: %v, %d inside, %+v", scope, *other, d.Inside(), d.Counters())
		}
	}
}

func TestIPv6SourcesAreNetworksOf64And48Bits(t *testing.T) {
	for _, c := range []struct{ a, source, prefix string }{
		{"2001:db8:1:2:3::4", "2001:db8:1:2::/64", "2001:db8:1::/48"},
		{"fe80::1%eth0", "fe80::/64", "fe80::/48"},
		{"::ffff:192.0.2.7", "192.0.2.7/32", "192.0.2.0/24"},
		{"192.0.2.7", "192.0.2.7/32", "192.0.2.0/24"},
	} {
		a := netip.MustParseAddr(c.a)
		if s, p := SourceOf(a).String(), PrefixOf(a).String(); s != c.source || p != c.prefix {
			t.Errorf("%v: source %s, prefix %s, want %s, %s", a, s, p, c.source, c.prefix)
		}
	}
	if g, _ := small().Admit(netip.Addr{}, start); g == nil {
		t.Error("a peer without an address is refused")
	}
}

func TestASourceHasASixteenthAndAPrefixAQuarterWithALeastOfBoth(t *testing.T) {
	for most, want := range map[int][2]int{4: {4, 4}, 64: {8, 32}, 1024: {64, 256}} {
		if c := Shares(most).Waiting(); c.PerSource != want[0] || c.PerPrefix != want[1] || c.Grace != c.Patience/4 || c.Line != most/2 {
			t.Errorf("of %d: %+v", most, c)
		}
	}
}

func TestASilentNewcomerDoesNotPushOutOneThatProgresses(t *testing.T) {
	d := small()
	guests, evicted := crowd(t, d, 16)
	for _, g := range guests {
		g.Progress(after(500 * time.Millisecond))
	}
	g, cause := d.Admit(ip(203, 0, 113, 1), after(1499*time.Millisecond))
	if g != nil || cause != FullDoor || d.Counters() != (Counters{OverAll: 1}) {
		t.Fatalf("admitted %v, %v, %+v", g != nil, cause, d.Counters())
	}
	guests[0].Progress(after(1400 * time.Millisecond))
	enter(t, d, ip(203, 0, 113, 1), after(1500*time.Millisecond))
	for i, e := range evicted {
		if *e != (i == 1) {
			t.Errorf("guest %d evicted: %v", i, *e)
		}
	}
}

func TestRefusalsAreCountedByCause(t *testing.T) {
	d := small()
	for i := range 6 {
		g, _ := enter(t, d, ip(192, 0, 2, byte(i/4)), start)
		g.Progress(start)
	}
	for i := range 5 {
		g, _ := enter(t, d, ip(10, byte(i), 0, 1), start)
		g.Progress(start)
	}
	for _, c := range []struct {
		from string
		want Cause
	}{{"192.0.2.0", FullSource}, {"192.0.2.9", FullPrefix}} {
		if g, cause := d.Admit(netip.MustParseAddr(c.from), start); g != nil || cause != c.want {
			t.Errorf("%s: %v", c.from, cause)
		}
	}
	if got := d.Counters(); got != (Counters{Source: 1, Prefix: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestThoseThatHaveToGoHoldUpNewcomersUntilTheyAreGone(t *testing.T) {
	d := small()
	crowd := make([]*Guest, 16)
	for i := range crowd {
		crowd[i], _ = d.Admit(ip(10, byte(i), 0, 1), start)
	}
	for i := range crowd {
		if g, cause := d.Admit(ip(11, byte(i), 0, 1), start); g == nil {
			t.Fatalf("newcomer %d: %v", i, cause)
		}
		crowd[i].Progress(start) // it has not noticed yet
	}
	if g, cause := d.Admit(ip(11, 19, 0, 1), start); g != nil || cause != FullDoor {
		t.Fatalf("admitted while %d are leaving: %v", len(crowd), cause)
	}
	crowd[0].Leave()
	crowd[0].Leave()
	if g, cause := d.Admit(ip(11, 19, 0, 1), start); g == nil {
		t.Errorf("refused when one has left: %v", cause)
	}
	if g, _ := d.Admit(ip(11, 20, 0, 1), start); g != nil {
		t.Error("leaving twice makes room twice")
	}
}

func TestASourceWhoseConnectionsHaveToGoHoldsUpOnlyItself(t *testing.T) {
	d := small()
	crowd(t, d, 9)
	var all []*Guest
	for range 4 + 4 {
		g, cause := d.Admit(ip(192, 0, 2, 1), start)
		if g == nil {
			t.Fatal(cause)
		}
		all = append(all, g)
	}
	for _, g := range append(all[4:], nil) { // the last one of the source that need not go leaves, too
		if g, cause := d.Admit(ip(192, 0, 2, 1), start); g != nil || cause != FullSource {
			t.Errorf("admitted while 4 of the source are leaving: %v", cause)
		}
		g.Leave()
	}
	if g, cause := d.Admit(ip(198, 51, 100, 1), start); g == nil {
		t.Errorf("another source is refused: %v", cause)
	}
}

// Matrix: RL-08
func TestNothingIsKeptOfWhoHasLeft(t *testing.T) {
	d := small()
	rng := rand.New(rand.NewPCG(1, 2))
	var inside []*Guest
	for i := range 10_000 {
		now := after(time.Duration(i) * time.Millisecond)
		switch k := rng.IntN(3); {
		case k == 0 && len(inside) > 0:
			at := rng.IntN(len(inside))
			inside[at].Leave()
			inside = append(inside[:at], inside[at+1:]...)
		case k == 1 && len(inside) > 0:
			inside[rng.IntN(len(inside))].Progress(now)
		default:
			if g, _ := d.Admit(ip(10, byte(rng.IntN(4)), 0, byte(rng.IntN(4))), now); g != nil {
				g.OnEvict(g.Leave)
				inside = append(inside, g)
			}
		}
		if n := d.Inside(); n > 16 {
			t.Fatalf("%d inside", n)
		}
	}
	for _, g := range inside {
		g.Progress(after(time.Hour))
		g.Leave()
	}
	if d.Inside() != 0 || len(d.sources) != 0 || len(d.prefixes) != 0 || d.all.leaving != 0 || d.all.silent != (queue{}) || d.all.moving != (queue{}) {
		t.Errorf("left behind: %d inside, %d sources, %d prefixes, %d leaving", d.Inside(), len(d.sources), len(d.prefixes), d.all.leaving)
	}
	taken := d.progress.taken
	if d.progress.head.Load() != nil || slices.ContainsFunc(taken[:cap(taken)], func(g *Guest) bool { return g != nil }) {
		t.Error("the reports keep a guest that has left")
	}
}

func TestADoorTakesManyGoroutines(t *testing.T) {
	d := small()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 2000 {
				g, _ := d.Admit(ip(10, byte(n%5), 0, byte(i)), start)
				g.OnEvict(g.Leave)
				g.Progress(start)
				g.Leave()
			}
		})
	}
	all.Wait()
	if d.Inside() != 0 || d.all.leaving != 0 || len(d.sources) != 0 {
		t.Errorf("%d inside, %d leaving", d.Inside(), d.all.leaving)
	}
}

// Guests report their steps without the lock. Who gives way is whoever would if each
// step had moved its guest in the lists at once.
// Matrix: RL-02
func TestWhoStoodStillForLongestGivesWayWhateverTheOrderOfTheReports(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		const most = 8
		d := New(Config{Most: most, PerSource: most, PerPrefix: most, Patience: time.Second})
		now := start
		type inside struct {
			g       *Guest
			last    time.Time
			evicted bool
		}
		var guests []*inside
		admit := func() {
			g, cause := d.Admit(ip(0, 0, 1), now)
			if g == nil {
				t.Fatal(cause)
			}
			one := &inside{g: g, last: now}
			g.OnEvict(func() { one.evicted = true })
			guests = append(guests, one)
		}
		step := func(one *inside) {
			now = now.Add(time.Duration(1 + rng.IntN(1000)))
			one.last = now
			one.g.Progress(now)
		}
		for range most {
			admit()
			step(guests[len(guests)-1])
		}
		for range 20 {
			for range rng.IntN(12) {
				step(guests[rng.IntN(most)])
			}
			now = now.Add(time.Second) // whoever it is has stood still for long enough
			oldest := slices.MinFunc(guests, func(a, b *inside) int { return a.last.Compare(b.last) })
			admit()
			guests[most].last = now
			for _, one := range guests {
				if one.evicted != (one == oldest) {
					t.Fatalf("evicted %v one that stood still for %v, the longest is %v", one.evicted, now.Sub(one.last), now.Sub(oldest.last))
				}
			}
			oldest.g.Leave()
			guests = slices.DeleteFunc(guests, func(one *inside) bool { return one == oldest })
			step(guests[most-1])
		}
	}
}

// What a guest reports and holds of its own it says without the lock.
func TestTheStepsOfAHandshakeTakeNoLock(t *testing.T) {
	d, c := paced()
	g, _ := d.Admit(ip(0, 0, 1), c.now)
	d.mu.Lock() // a call that takes it never returns
	begun := false
	g.Begin(func() { begun = true })
	g.OnEvict(func() { t.Error("it has to go") })
	for range 10 {
		g.Progress(c.now)
		if !g.Hold(OwnBytes / 10) {
			t.Error("no room for its own")
		}
	}
	g.Passed()
	d.mu.Unlock()
	if g.Leave(); !begun || d.Inside() != 0 {
		t.Errorf("begun: %v, %d are inside", begun, d.Inside())
	}
}
