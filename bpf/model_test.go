package bpf

import (
	"net/netip"
	"slices"
)

// Model is the state that the program decides by, in Go: what a test expects of the program.
type Model struct {
	// Policy is the policy in force.
	Policy Policy
	// AddrPort and Addr are the table. Addresses are as normalize returns
	// them.
	AddrPort map[netip.AddrPort]int
	Addr     map[netip.Addr]int
	// Live are the cores that were added and not drained, ascending.
	Live []int
	// Closed are those of Live whose listener was closed without a Drain:
	// the rules still name them, their slots are empty.
	Closed []int
}

// Connection is a connection that needs a listener.
type Connection struct {
	// Peer is the source of the SYN.
	Peer netip.AddrPort
	// CPU is the one that took the SYN.
	CPU int
	// Moving says that the connection had a listener, which closed. The CPU
	// then has no meaning and its rule is left out.
	Moving bool
}

// Decision is what the program does with a Connection.
type Decision struct {
	// Rule found the listener.
	Rule Rule
	// Core is the chosen core, -1 for RuleHash: the kernel does not tell.
	Core int
	// Missed are the rules that named a core without a listener before.
	Missed []Miss
}

// Miss is a rule that named a core without a listener.
type Miss struct {
	Rule Rule
	// Core is the named core, -1 if the CPU has none.
	Core int
}

// Decide returns what the program does with a. It does not change m.
func (m *Model) Decide(a Connection) Decision {
	var d Decision
	peer := normalizePort(a.Peer)
	rules := m.Policy.Rules
	try := func(rule Rule, core int) bool {
		if slices.Contains(m.Live, core) && !slices.Contains(m.Closed, core) {
			d.Rule, d.Core = rule, core
			return true
		}
		d.Missed = append(d.Missed, Miss{rule, core})
		return false
	}
	if rules.Has(RuleAddrPort) {
		if core, ok := m.AddrPort[peer]; ok && try(RuleAddrPort, core) {
			return d
		}
	}
	if rules.Has(RuleAddr) {
		if core, ok := m.Addr[peer.Addr()]; ok && try(RuleAddr, core) {
			return d
		}
	}
	if rules.Has(RuleHint) && m.Policy.Cores > 0 && m.Policy.Hint.Contains(peer.Port()) {
		if try(RuleHint, int(peer.Port())%m.Policy.Cores) {
			return d
		}
	}
	if rules.Has(RuleCPU) && !a.Moving {
		core := m.Policy.standIn(a.CPU, m.Live)
		if core == noCore {
			core = -1
		}
		if try(RuleCPU, core) {
			return d
		}
	}
	d.Rule, d.Core = RuleHash, -1
	return d
}

func normalizePort(p netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(normalize(p.Addr()), p.Port())
}

// normalize returns addr in the form in which the table keeps it: IPv4 instead
// of IPv4-mapped IPv6, and without a zone.
func normalize(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
