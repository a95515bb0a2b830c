package bpf

import "fmt"

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
