package control

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestWhereAConnectionArrivedIsJudgedByTheRules(t *testing.T) {
	plane, err := dataplane.New(dataplane.Config{Cores: 4, Driver: uring.Config{Backend: uring.Epoll}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Close)
	hints := bpf.PortRange{First: 61000, Last: 61999}
	with := func(rules bpf.Rules) *steering {
		return &steering{policy: bpf.Policy{Rules: rules, Cores: 4, Hint: hints}, groups: []*steerGroup{{}}}
	}
	off := &steering{err: bpf.ErrUnsupported}
	for _, one := range []struct {
		name string
		s    *steering
		port uint16
		core int
		had  int // core of the session, -1: new
		want Placement
	}{
		{"new, nothing bound", nil, 40000, 1, -1, Placement{1, 1, "hash", ""}},
		{"new, unsteered", off, 61002, 1, -1, Placement{1, 1, "hash", ""}},
		{"new, ordinary port", with(bpf.UseHint), 40000, 1, -1, Placement{1, 1, "hash", ""}},
		{"new, by the CPU", with(bpf.UseHint | bpf.UseCPU), 40000, 1, -1, Placement{1, 1, "cpu", ""}},
		{"new, hint", with(bpf.UseHint), 61002, 2, -1, Placement{2, 2, "hint", ""}},
		{"new, hint missed", with(bpf.UseHint), 61002, 3, -1, Placement{3, 2, "hint", "missed"}},
		{"new, hints not in force", with(bpf.UseCPU), 61002, 3, -1, Placement{3, 3, "cpu", ""}},
		{"back home", with(bpf.UseHint), 61002, 2, 2, Placement{2, 2, "session", ""}},
		{"back home by chance", off, 40000, 2, 2, Placement{2, 2, "session", ""}},
		{"elsewhere, unsteered", off, 40000, 1, 2, Placement{1, 2, "session", "unsteered"}},
		{"elsewhere, no hint", with(bpf.UseHint), 40000, 1, 2, Placement{1, 2, "session", "no hint"}},
		{"elsewhere, another hint", with(bpf.UseHint), 61001, 1, 2, Placement{1, 2, "session", "another hint"}},
		{"elsewhere, its own hint", with(bpf.UseHint), 61002, 1, 2, Placement{1, 2, "session", "missed"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			a := arrival{peer: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), one.port), core: one.core}
			if one.had >= 0 {
				a.had = plane.Core(one.had)
			}
			got := one.s.judge(a)
			if got != one.want {
				t.Errorf("got %+v, want %+v", got, one.want)
			}
			var n PlacementCounters
			n.count(got)
			if (n.Intended == 1) != (got.Core == got.Intended) || n.Intended+n.Unsteered+n.NoHint+n.OtherHint+n.Missed != 1 {
				t.Errorf("counted %+v", n)
			}
		})
	}
}

func TestCPUsAreSpreadOverTheCoresAsPinnedThreadsAre(t *testing.T) {
	for _, one := range []struct {
		cores   int
		allowed []int
		cpus    int
		want    string
	}{
		{4, []int{0, 1, 2, 3}, 4, "[0 1 2 3]"},
		{2, []int{0, 1, 2, 3}, 4, "[0 1 0 1]"},      // fewer cores than CPUs
		{4, []int{0, 1}, 2, "[0 1]"},                // more
		{2, []int{2, 3}, 4, "[0 1 0 1]"},            // a part of the machine
		{3, []int{4, 6, 7}, 8, "[0 1 2 0 0 2 1 2]"}, // with a gap; the others are spread
	} {
		if got := fmt.Sprint(cpuHomes(one.cores, one.allowed, one.cpus)); got != one.want {
			t.Errorf("%+v: %s", one, got)
		}
	}
}
