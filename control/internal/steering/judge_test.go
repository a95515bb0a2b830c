package steering

import (
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/bpf"
)

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
		})
	}
}

func TestOnlyCoresThatAHintCanReachGetOne(t *testing.T) {
	s := New(Config{})
	if h := s.Hint(0); h.Known() {
		t.Errorf("nothing is bound: %+v", h)
	}
	s.now.Store(&view{active: true, rules: bpf.UseHint, cores: 4, gone: map[int]bool{2: true}})
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
