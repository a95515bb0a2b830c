package bpf

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestPolicySurvivesPacking(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		p := Policy{
			Rules: Rules(rnd.IntN(256)) & allRules,
			Cores: 1 + rnd.IntN(MaxCores),
			Hint:  PortRange{uint16(rnd.Uint32()), uint16(rnd.Uint32())},
		}
		cpus := 1 + rnd.IntN(8)
		if rnd.IntN(2) == 0 {
			for range cpus {
				p.CPUs = append(p.CPUs, rnd.IntN(p.Cores+1)-1)
			}
		}
		live := []int{rnd.IntN(p.Cores)}
		got := unpack(p.pack(cpus, live))
		if got.CPUs == nil { // the given CPUs happen to be the default
			for cpu, core := range p.CPUs {
				if core != got.home(cpu) {
					t.Fatalf("%+v came back as %+v", p, got)
				}
			}
			p.CPUs = nil
		}
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("%+v came back as %+v", p, got)
		}
	}
}

func TestDrainedCoresGetNoCPU(t *testing.T) {
	p := Policy{Rules: UseCPU, Cores: 4}
	for _, c := range []struct {
		live []int
		want []int // of CPUs 0 to 7
	}{
		{[]int{0, 1, 2, 3}, []int{0, 1, 2, 3, 0, 1, 2, 3}},
		{[]int{0, 1, 3}, []int{0, 1, 3, 3, 0, 1, 0, 3}},
		{[]int{2}, []int{2, 2, 2, 2, 2, 2, 2, 2}},
		{nil, []int{0, 1, 2, 3, 0, 1, 2, 3}},
		{[]int{0, 1, 2, 3, 4, 9}, []int{0, 1, 2, 3, 0, 1, 2, 3}},
		{[]int{7}, []int{0, 1, 2, 3, 0, 1, 2, 3}},
	} {
		for cpu, want := range c.want {
			if got := p.standIn(cpu, c.live); got != want {
				t.Errorf("live %v: CPU %d has core %d, want %d", c.live, cpu, got, want)
			}
		}
	}
}

func TestBadPoliciesAreRefused(t *testing.T) {
	hints := PortRange{61000, 61999}
	for name, p := range map[string]Policy{
		"unknown rules":       {Rules: 1 << 7, Cores: 1},
		"hash as a rule":      {Rules: 1 << RuleHash, Cores: 1},
		"negative cores":      {Cores: -1},
		"too many cores":      {Cores: MaxCores + 1},
		"CPU without cores":   {Rules: UseCPU},
		"hint without cores":  {Rules: UseHint, Hint: hints},
		"hint without range":  {Rules: UseHint, Cores: 1},
		"hint range reversed": {Rules: UseTable, Hint: PortRange{5, 4}},
		"hint range small":    {Rules: UseHint, Cores: 8, Hint: PortRange{61000, 61006}},
		"CPU beyond cores":    {Rules: UseCPU, Cores: 2, CPUs: []int{0, 2}},
		"CPU below -1":        {Rules: UseCPU, Cores: 2, CPUs: []int{-2}},
	} {
		if err := p.validate(); !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, p := range map[string]Policy{
		"zero":    {},
		"default": defaultPolicy(64),
		"all":     {Rules: allRules, Cores: MaxCores, Hint: PortRange{61000, 65535}, CPUs: []int{-1, MaxCores - 1}},
	} {
		if err := p.validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := Policy{Rules: UseHint | UseCPU, CPUs: []int{3}}.validate()
	if n := strings.Count(err.Error(), "\n"); n != 2 {
		t.Errorf("not all problems at once: %v", err)
	}
}

func TestHintRangeInEphemeralPortsIsRefused(t *testing.T) {
	ephemeral, err := ephemeralPorts()
	must(t, err)
	p := Policy{Rules: UseHint, Cores: 1, Hint: PortRange{ephemeral.Last, ephemeral.Last}}
	if err := check(p, 1); !errors.Is(err, ErrPolicy) {
		t.Error(err)
	}
	p.Rules = UseTable // the range has no effect
	must(t, check(p, 1))
}
