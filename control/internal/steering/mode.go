package steering

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// Mode names the rules by which the kernel chooses the core of a new connection: one of
// the names, or several joined by commas ("table,cpu"). The order of the rules is table,
// hint, CPU; connections that none of them decides go by the kernel's hash. Package bpf
// has the details.
type Mode string

// The ways to steer.
const (
	// Auto is the table and the hint, and with pinned cores the CPU. The
	// CPU is not used otherwise: where one queue of the network card brings all
	// connections, it would give them all to one core.
	Auto Mode = "auto"
	// None loads no program, gives no hints and follows none.
	None Mode = "none"
	// CPU takes the core of the CPU that took the SYN.
	CPU Mode = "cpu"
	// Hint takes the core that the peer's source port names, which
	// reconnecting peers of this package choose by our server_cookie.
	Hint Mode = "hint"
	// Table takes the core that was pinned for the peer's address.
	Table Mode = "table"
)

// Rules are the rules of the mode; those of Auto depend on whether the cores are pinned.
func (s Mode) Rules(pinned bool) (bpf.Rules, error) {
	switch s {
	case None:
		return 0, nil
	case "", Auto:
		if pinned {
			return bpf.UseTable | bpf.UseHint | bpf.UseCPU, nil
		}
		return bpf.UseTable | bpf.UseHint, nil
	}
	var rules bpf.Rules
	for name := range strings.SplitSeq(string(s), ",") {
		switch Mode(name) {
		case CPU:
			rules |= bpf.UseCPU
		case Hint:
			rules |= bpf.UseHint
		case Table:
			rules |= bpf.UseTable
		default:
			return 0, fmt.Errorf("steering %q, want %s, %s, or a list of %s, %s and %s",
				s, Auto, None, CPU, Hint, Table)
		}
	}
	return rules, nil
}

// Stats says how new connections find their core.
type Stats struct {
	Mode   Mode     `json:"mode"`   // as configured
	Active bool     `json:"active"` // the rules below are in force on all listening addresses
	Rules  []string `json:"rules,omitempty"`
	// HintPorts is the range of source ports that are taken for an owner hint.
	HintPorts string `json:"hint_ports,omitempty"`
	// Migration says that connections which wait at a listener that closes move
	// to another one.
	Migration bool `json:"migration"`
	// Why is the reason why nothing is steered, with the remedy if there is one.
	Why     string `json:"why,omitempty"`
	Missing string `json:"missing,omitempty"`
	Remedy  string `json:"remedy,omitempty"`

	Groups []GroupStats `json:"groups,omitempty"`
}

// GroupStats count for one listening address. After Close the counters stay at their
// last values.
type GroupStats struct {
	Addr     string       `json:"addr"`
	Counters bpf.Counters `json:"counters"`
}

// Stats takes a snapshot.
func (s *Steerer) Stats() (Stats, error) {
	s.lock()
	defer s.mu.Unlock()
	st := Stats{Mode: s.cfg.Mode, Active: s.active()}
	var missing *bpf.LoadError
	switch {
	case s.phase == unbound:
		st.Why = "not bound"
		return st, nil
	case s.err != nil:
		st.Why = s.err.Error()
		if errors.As(s.err, &missing) {
			st.Why, st.Missing, st.Remedy = missing.Err.Error(), missing.Missing, missing.Remedy
		}
		return st, nil
	case s.phase == closed:
		st.Why = "not bound any more"
	}
	st.Rules = s.ruleNames()
	if s.policy.Rules.Has(bpf.RuleHint) {
		st.HintPorts = s.policy.Hint.String()
	}
	for _, g := range s.groups {
		st.Migration = g.prog.Info().Migration
		counters := g.last
		if s.phase != closed {
			var err error
			if counters, err = g.prog.Counters(); err != nil {
				return st, err
			}
		}
		// The other slots wait for cores to be added.
		counters.Cores = counters.Cores[:min(len(counters.Cores), s.policy.Cores)]
		st.Groups = append(st.Groups, GroupStats{Addr: g.addr.String(), Counters: counters})
	}
	return st, nil
}
