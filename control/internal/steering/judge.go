package steering

import (
	"maps"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// view is a copy of the facts at one moment. It never changes.
type view struct {
	active bool
	rules  bpf.Rules
	cores  int
	hint   bpf.PortRange
	gone   map[int]bool
	table  *bpf.Steering // that has the pins; nil: none is in force
}

// current makes the view of this moment. The lock is held.
func (s *Steerer) current() *view {
	v := &view{active: s.active(), rules: s.policy.Rules, cores: s.policy.Cores, hint: s.policy.Hint, gone: maps.Clone(s.gone)}
	if v.active && v.rules.Has(bpf.RuleAddr) {
		v.table = s.groups[0].prog // all have the same pins
	}
	return v
}

// takesHints says whether a peer that follows a hint gets where it leads.
func (v *view) takesHints() bool { return v.active && v.rules.Has(bpf.RuleHint) }

// Hint is the owner hint for the peer of a session that core owns: the zero Owner if the
// peer could not reach the core by a hint. It never waits.
func (s *Steerer) Hint(core int) Owner {
	v := s.now.Load()
	if !v.takesHints() || core >= v.cores || v.gone[core] {
		return Owner{}
	}
	return Owner{Core: core, Cores: v.cores}
}

// Accepted is an accepted socket: its addresses and its core.
type Accepted struct {
	Peer   netip.AddrPort
	Core   int // where it arrived
	Owner  int // core that owns its session, NoCore for a new one
	Pin    int // core that its peer is pinned to, if Pinned
	Pinned bool
}

// NoCore is a number that no core has.
const NoCore = -1

// The rules that choose the core of an accepted connection.
const (
	ByTable   = "table"
	BySession = "session" // it had an owner before
	ByHint    = "hint"
	ByCPU     = "cpu"
	ByHash    = "hash"
)

// The reasons why a connection is not on the core that was meant.
const (
	Unsteered = "unsteered"    // nothing steers our listeners
	NoHint    = "no hint"      // the peer came from an ordinary port, or with a program without the hint rule
	OtherHint = "another hint" // the peer's port named another core
	Missed    = "missed"       // the rule named it, and the kernel took another
)

// Verdict names the intended core, the rule that chose it, and the reason if the connection
// is not there; Reason is empty if it is.
type Verdict struct {
	Intended int
	By       string
	Reason   string
}

// Judge compares the core at which a connection arrived with the rules. It never waits.
func (s *Steerer) Judge(a Accepted) Verdict { return s.now.Load().judge(a) }

func (v *view) judge(a Accepted) Verdict {
	out := Verdict{Intended: a.Core}
	hint := NoCore
	if v.takesHints() && v.hint.Contains(a.Peer.Port()) {
		hint = int(a.Peer.Port()) % v.cores
		if v.gone[hint] {
			hint = NoCore // it leads nowhere
		}
	}
	switch {
	case a.Pinned:
		out.By, out.Intended = ByTable, a.Pin
	case a.Owner != NoCore:
		out.By, out.Intended = BySession, a.Owner
	case hint != NoCore:
		out.By, out.Intended = ByHint, hint
	case v.active && v.rules.Has(bpf.RuleCPU):
		out.By = ByCPU
	default:
		out.By = ByHash
	}
	switch {
	case a.Core == out.Intended:
	case !v.active:
		out.Reason = Unsteered
	case out.By == BySession && hint == NoCore:
		out.Reason = NoHint
	case out.By == BySession && hint != out.Intended:
		out.Reason = OtherHint
	default:
		out.Reason = Missed
	}
	return out
}
