package placement

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestTheFittestThenTheLeastLoadedThenTheNextIsChosen(t *testing.T) {
	for _, one := range []struct {
		name  string
		cores []Fact
		from  int
		want  int
	}{
		{"none", nil, 0, -1},
		{"the only one, gone as it is", []Fact{{Gone, 9}}, 0, 0},
		{"the least loaded", []Fact{{Healthy, 3}, {Healthy, 1}, {Healthy, 2}}, 0, 1},
		{"healthy before idle", []Fact{{Stalled, 0}, {Healthy, 9}, {Gone, 0}}, 0, 1},
		{"stalled before gone", []Fact{{Gone, 0}, {Stalled, 9}}, 0, 1},
		{"the first in turn", []Fact{{Healthy, 1}, {Healthy, 1}, {Healthy, 1}}, 1, 1},
		{"round the end", []Fact{{Healthy, 1}, {Healthy, 2}, {Healthy, 2}}, 2, 0},
		{"a turn that lies behind the end", []Fact{{Healthy, 1}, {Healthy, 1}}, 3, 1},
	} {
		if got := Choose(one.cores, one.from); got != one.want {
			t.Errorf("%s: %d, want %d", one.name, got, one.want)
		}
	}
}

func TestCoresTakeTurnsAndThoseThatLeaveGetNothing(t *testing.T) {
	p, err := loop.New(loop.Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	var turns Turns
	for _, want := range []int{0, 1, 2, 0} {
		if got := turns.Pick(p.All()).ID(); got != want {
			t.Errorf("core %d, want %d", got, want)
		}
	}
	all := p.All()
	if err := p.Drain(all[1]); err != nil {
		t.Fatal(err)
	}
	if FitnessOf(all[1]) != Gone {
		t.Errorf("fitness %d of a core that leaves", FitnessOf(all[1]))
	}
	for _, want := range []int{2, 0, 2} {
		if got := turns.Pick(all).ID(); got != want {
			t.Errorf("core %d, want %d", got, want)
		}
	}
	if left := Running(all); len(left) != 2 || left[0] != all[0] || left[1] != all[2] {
		t.Errorf("%d run", len(left))
	}
}
