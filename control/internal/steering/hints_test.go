package steering

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// following are hints that are followed from ports of a range, at a time that
// stands still.
func following(ports bpf.PortRange) (h *Hints, now *time.Time) {
	now = new(time.Time)
	*now = time.Unix(1000, 0)
	return NewHints(HintsConfig{
		Follow: true, Ports: ports, Now: func() time.Time { return *now }, Lines: loop.NewRationedLogger(slog.New(slog.DiscardHandler), time.Now),
	}), now
}

func TestHintedPortsLeadToTheOwner(t *testing.T) {
	h, _ := following(bpf.PortRange{First: 61000, Last: 61999})
	for _, to := range []string{"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"} {
		peer := netip.MustParseAddr(to)
		ports := h.Ports(Owner{Core: 3, Cores: 7}, peer)
		if len(ports) != HintAttempts {
			t.Fatalf("%d ports", len(ports))
		}
		seen := map[uint16]bool{}
		for _, p := range ports {
			if p.Port()%7 != 3 || p.Port() < 61000 || p.Port() > 61999 || seen[p.Port()] {
				t.Errorf("port %d", p.Port())
			}
			seen[p.Port()] = true
			if !p.Addr().IsUnspecified() || p.Addr().Is4() != peer.Unmap().Is4() {
				t.Errorf("bind to %v for a peer at %v", p, peer)
			}
		}
	}
	peer := netip.MustParseAddr("192.0.2.1")
	if ports := h.Ports(Owner{}, peer); ports != nil {
		t.Errorf("ports %v without a hint", ports)
	}
	small, _ := following(bpf.PortRange{First: 61000, Last: 61007})
	if ports := small.Ports(Owner{Core: 1, Cores: 4}, peer); len(ports) != 2 {
		t.Errorf("a range with two ports for the core gives %v", ports)
	}
	if ports := NewHints(HintsConfig{Ports: small.cfg.Ports, Now: time.Now}).Ports(Owner{Core: 1, Cores: 4}, peer); ports != nil {
		t.Errorf("ports %v where no hint is followed", ports)
	}
}

func TestAPauseIsForOneHostAndEnds(t *testing.T) {
	h, now := following(bpf.PortRange{First: 61000, Last: 61999})
	owner, peer := Owner{Core: 1, Cores: 4}, netip.MustParseAddr("192.0.2.1")
	h.Pause(netip.MustParseAddr("::ffff:192.0.2.1"), "refused", func(n *HintCounts) { n.Refused++ })
	if h.Ports(owner, peer) != nil || h.Counts() != (HintCounts{Refused: 1}) {
		t.Errorf("hints go on, counted %+v", h.Counts())
	}
	other := netip.MustParseAddr("192.0.2.2")
	if h.Ports(owner, other) == nil {
		t.Error("another host gets no hints")
	}
	if h.Pause(other, "refused", func(*HintCounts) {}); !h.Paused(peer) {
		t.Error("the pause of another host ends it")
	}
	*now = now.Add(HintPause)
	if h.Ports(owner, peer) == nil {
		t.Error("the pause does not end")
	}
}

// Matrix: RL-08
func TestThePausesOfManyHostsAreBounded(t *testing.T) {
	h, _ := following(bpf.PortRange{First: 61000, Last: 61999})
	for i := range 3 * hintPauses {
		h.Pause(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "refused", func(*HintCounts) {})
		if n := len(h.paused); n > hintPauses {
			t.Fatalf("%d hosts are remembered", n)
		}
	}
}

func TestWhereAConnectionArrivedIsJudgedByTheRules(t *testing.T) {
	hints := bpf.PortRange{First: 61000, Last: 61999}
	with := func(rules bpf.Rules) *view { return &view{active: true, rules: rules, cores: 4, hint: hints} }
	gone := func(core int) *view {
		v := with(bpf.UseHint)
		v.gone = map[int]bool{core: true}
		return v
	}
	off := &view{}
	for _, one := range []struct {
		name string
		s    *view
		port uint16
		core int
		had  int // core of the session, -1: new
		want Verdict
	}{
		{"new, nothing bound", New(Config{}).now.Load(), 40000, 1, -1, Verdict{1, "hash", ""}},
		{"new, unsteered", off, 61002, 1, -1, Verdict{1, "hash", ""}},
		{"new, rules not in force", &view{rules: bpf.UseCPU}, 40000, 1, -1, Verdict{1, "hash", ""}},
		{"new, ordinary port", with(bpf.UseHint), 40000, 1, -1, Verdict{1, "hash", ""}},
		{"new, by the CPU", with(bpf.UseHint | bpf.UseCPU), 40000, 1, -1, Verdict{1, "cpu", ""}},
		{"new, hint", with(bpf.UseHint), 61002, 2, -1, Verdict{2, "hint", ""}},
		{"new, hint missed", with(bpf.UseHint), 61002, 3, -1, Verdict{2, "hint", "missed"}},
		{"new, hints not in force", with(bpf.UseCPU), 61002, 3, -1, Verdict{3, "cpu", ""}},
		{"new, hint to a core that is gone", gone(2), 61002, 1, -1, Verdict{1, "hash", ""}},
		{"back home", with(bpf.UseHint), 61002, 2, 2, Verdict{2, "session", ""}},
		{"back home by chance", off, 40000, 2, 2, Verdict{2, "session", ""}},
		{"elsewhere, unsteered", off, 40000, 1, 2, Verdict{2, "session", "unsteered"}},
		{"elsewhere, no hint", with(bpf.UseHint), 40000, 1, 2, Verdict{2, "session", "no hint"}},
		{"elsewhere, another hint", with(bpf.UseHint), 61001, 1, 2, Verdict{2, "session", "another hint"}},
		{"elsewhere, its own hint", with(bpf.UseHint), 61002, 1, 2, Verdict{2, "session", "missed"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			a := Accepted{Peer: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), one.port), Core: one.core, Owner: one.had}
			if got := one.s.judge(a); got != one.want {
				t.Errorf("got %+v, want %+v", got, one.want)
			}
			// A pin goes before everything else, and is missed where it did not hold.
			a.Pin, a.Pinned = one.core, true
			if got := one.s.judge(a); got != (Verdict{one.core, ByTable, ""}) {
				t.Errorf("pinned here: %+v", got)
			}
			missed := Unsteered
			if one.s.active {
				missed = Missed
			}
			if a.Pin++; one.s.judge(a) != (Verdict{one.core + 1, ByTable, missed}) {
				t.Errorf("pinned elsewhere: %+v", one.s.judge(a))
			}
		})
	}
}

func TestOnlyCoresThatAHintCanReachGetOne(t *testing.T) {
	s := New(Config{Rules: bpf.UseHint, HintPorts: bpf.PortRange{First: 61000, Last: 61999}})
	if h := s.Hint(0); h.Known() {
		t.Errorf("nothing is bound: %+v", h)
	}
	s.decide([]int{0, 1, 3}) // a core has left before it is bound
	s.now.Store(&view{active: true, rules: s.policy.Rules, cores: s.policy.Cores, gone: s.gone})
	for core, want := range []Owner{{0, 4}, {1, 4}, {}, {3, 4}, {}} {
		if h := s.Hint(core); h != want {
			t.Errorf("core %d: %+v, want %+v", core, h, want)
		}
	}
	s.now.Store(&view{active: true, rules: bpf.UseCPU, cores: 4})
	if h := s.Hint(0); h.Known() {
		t.Errorf("without the hint rule: %+v", h)
	}
}

// What stands in the cookie besides are 48 bits of the random source.
func TestEveryOwnerSurvivesTheCookie(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for cores := 2; cores <= maxHintCores; cores++ {
		for core := range cores {
			for range 4 {
				h, random := Owner{Core: core, Cores: cores}, rng.Uint64()
				cookie := h.Cookie(random)
				if got := ParseCookie(cookie); got != h || cookie>>16 != random<<16>>16 {
					t.Fatalf("%+v comes back as %+v, %#x as %#x", h, got, random, cookie>>16)
				}
			}
		}
	}
}

// The low bits of cookies with the same hint look random without the hash: each value of each half
// is about as frequent as the others, and the halves do not depend on each other.
func TestCookiesWithTheSameHintLookRandom(t *testing.T) {
	const n = 1 << 16
	rng := rand.New(rand.NewPCG(3, 4))
	for _, h := range []Owner{{0, 2}, {1, 4}, {63, 64}} {
		var low, high, both [256]int
		for range n {
			c := h.Cookie(rng.Uint64())
			low[byte(c)]++
			high[byte(c>>8)]++
			both[byte(c)^byte(c>>8)]++
		}
		for _, counts := range [][]int{low[:], high[:], both[:]} {
			// 255 degrees of freedom: mean 255, deviation 22.6.
			if x := chiSquare(counts); x < 130 || x > 400 {
				t.Errorf("%+v: chi square of a byte %.0f", h, x)
			}
		}
	}
}

// chiSquare compares counts with a uniform distribution.
func chiSquare(counts []int) float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	want := float64(total) / float64(len(counts))
	x := 0.0
	for _, n := range counts {
		x += (float64(n) - want) * (float64(n) - want) / want
	}
	return x
}

func TestFewForeignCookiesAreTakenForAHint(t *testing.T) {
	const n = 1 << 18
	rng := rand.New(rand.NewPCG(5, 6))
	taken := 0
	for range n {
		cookie := rng.Uint64()
		if h := ParseCookie(cookie); h.Known() {
			taken++
			if h.Core < 0 || h.Core >= h.Cores || h.Cores > maxHintCores || h.Cookie(cookie>>16) != cookie {
				t.Fatalf("impossible hint %+v of cookie %#x", h, cookie)
			}
		}
	}
	want := float64(n) * hintPairs / (1 << 16)
	if math.Abs(float64(taken)-want) > 6*math.Sqrt(want) {
		t.Errorf("%d of %d foreign cookies are taken for a hint, expected about %.0f", taken, n, want)
	}
	if ParseCookie(0).Known() {
		t.Error("no cookie is taken for a hint")
	}
}
