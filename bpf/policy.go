package bpf

import (
	"errors"
	"fmt"
	"slices"
)

// MaxCores is the largest number of cores that a policy can describe.
const MaxCores = noCore

// noCore in a policy word says that the CPU has no core. Core numbers are
// smaller.
const noCore = 1<<12 - 1

// ErrPolicy is wrapped by the errors of a policy that makes no sense: unknown rules, too many
// cores, or a hint range that is too small or meets the ephemeral range.
var ErrPolicy = errors.New("bad steering policy")

// Policy says which rules are on, and has their settings. The zero value
// leaves all connections to the kernel's hash.
type Policy struct {
	// Rules are the enabled rules.
	Rules Rules
	// Cores is the divisor of the hint and the default spread of the CPUs
	// over the cores: cores 0 to Cores-1. Needed by these two rules.
	Cores int
	// Hint is the range of source ports that are hints. It must not meet the ephemeral range,
	// whose ports are chance.
	Hint PortRange
	// CPUs maps each CPU (the index) to its core, -1 for none. Further CPUs have none. Nil
	// means CPU modulo Cores.
	CPUs []int
}

// validate returns every problem of p at once, wrapping ErrPolicy, or nil. It
// does not know the ephemeral range: SetPolicy and Load check against it.
func (p Policy) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrPolicy}, args...)...))
	}
	if p.Rules&^allRules != 0 {
		bad("unknown rules %#x", uint8(p.Rules&^allRules))
	}
	if p.Cores < 0 || p.Cores > MaxCores {
		bad("%d cores, at most %d", p.Cores, MaxCores)
	}
	if p.Rules&(UseHint|UseCPU) != 0 && p.Cores == 0 {
		bad("the hint and CPU rules need the number of cores")
	}
	if p.Hint.First > p.Hint.Last {
		bad("hint range %v is empty", p.Hint)
	} else if p.Rules.Has(RuleHint) && (p.Hint.First == 0 || p.Hint.Len() < p.Cores) {
		bad("hint range %v has no port for each of %d cores", p.Hint, p.Cores)
	}
	for cpu, core := range p.CPUs {
		if core < -1 || core >= p.Cores {
			bad("CPU %d has core %d of %d", cpu, core, p.Cores)
		}
	}
	return errors.Join(errs...)
}

// home returns the core that cpu belongs to when every core has a listener, or
// noCore.
func (p Policy) home(cpu int) int {
	switch {
	case p.CPUs == nil && p.Cores > 0:
		return cpu % p.Cores
	case cpu < len(p.CPUs) && p.CPUs[cpu] >= 0:
		return p.CPUs[cpu]
	}
	return noCore
}

// standIn returns the core that serves the connections of cpu while the cores
// in live (ascending) have listeners. A drained core's CPUs are spread over
// the others: left to the kernel's hash, they could reach its listener again.
func (p Policy) standIn(cpu int, live []int) int {
	for len(live) > 0 && live[len(live)-1] >= p.Cores {
		live = live[:len(live)-1] // reached through the table only
	}
	home := p.home(cpu)
	if home == noCore || len(live) == 0 || slices.Contains(live, home) {
		return home
	}
	return live[cpu%len(live)]
}

// pack returns the policy as the program reads it, one element per CPU.
func (p Policy) pack(cpus int, live []int) []steerPolicy {
	base := uint64(p.Rules) | uint64(p.Hint.First)<<8 | uint64(p.Hint.Last)<<24 | uint64(p.Cores)<<40
	packed := make([]steerPolicy, cpus)
	for cpu := range packed {
		packed[cpu].Word = base | uint64(p.standIn(cpu, live))<<52
		packed[cpu].Home = uint64(p.home(cpu))
	}
	return packed
}

// unpack is the reverse of pack. CPUs is nil if the CPUs have their default.
func unpack(packed []steerPolicy) Policy {
	if len(packed) == 0 {
		return Policy{}
	}
	w := packed[0].Word
	p := Policy{
		Rules: Rules(w),
		Hint:  PortRange{First: uint16(w >> 8), Last: uint16(w >> 24)},
		Cores: int(w >> 40 & noCore),
	}
	cpus := make([]int, len(packed))
	standard := true
	for cpu := range packed {
		home := int(packed[cpu].Home)
		standard = standard && home == p.home(cpu)
		if home == noCore {
			home = -1
		}
		cpus[cpu] = home
	}
	if !standard {
		p.CPUs = cpus
	}
	return p
}

// Rule is the rule that decided about a connection. The values are those of the program.
type Rule uint8

// The rules in their order, except that RuleHash decides when no other rule found a listener.
const (
	RuleHash     Rule = iota // the kernel's hash over all listeners of the group
	RuleAddrPort             // table entry for the peer's address and port
	RuleAddr                 // table entry for the peer's address
	RuleHint                 // source port within the hint range
	RuleCPU                  // CPU that took the SYN
	numRules
)

// String returns the name that counters and reports use.
func (r Rule) String() string {
	switch r {
	case RuleHash:
		return "hash"
	case RuleAddrPort:
		return "table_addrport"
	case RuleAddr:
		return "table_addr"
	case RuleHint:
		return "hint"
	case RuleCPU:
		return "cpu"
	}
	return fmt.Sprintf("rule(%d)", uint8(r))
}

// Rules is a set of enabled rules. The zero value leaves everything to the
// kernel's hash.
type Rules uint8

// The members of a set of Rules.
const (
	useAddrPort Rules = 1 << RuleAddrPort
	useAddr     Rules = 1 << RuleAddr
	UseHint     Rules = 1 << RuleHint
	UseCPU      Rules = 1 << RuleCPU
	UseTable          = useAddrPort | useAddr
	allRules          = UseTable | UseHint | UseCPU
)

// Has reports whether rule r is enabled. RuleHash always is.
func (s Rules) Has(r Rule) bool { return r == RuleHash || s&(1<<r) != 0 }
