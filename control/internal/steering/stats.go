package steering

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/bpf"
)

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
