package control

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// SteeringStats says how new connections find their core.
type SteeringStats struct {
	Mode   Steer    `json:"mode"`   // as configured
	Active bool     `json:"active"` // the rules below are in force on all listening addresses
	Rules  []string `json:"rules,omitempty"`
	// HintPorts is the range of source ports that are taken for an owner hint.
	HintPorts string `json:"hint_ports,omitempty"`
	// Migration says that connections which wait at a listener that closes move
	// to another one.
	Migration bool `json:"migration"`
	// Why nothing is steered, what is missing for it, and the remedy, where
	// there is one.
	Why     string `json:"why,omitempty"`
	Missing string `json:"missing,omitempty"`
	Remedy  string `json:"remedy,omitempty"`

	Groups []SteeringGroup `json:"groups,omitempty"`
}

// SteeringGroup counts for one listening address. Behind Unbind and Shutdown
// the counters stay at their last values.
type SteeringGroup struct {
	Addr     string       `json:"addr"`
	Counters bpf.Counters `json:"counters"`
}

// steeringStats takes a snapshot. The lock is held.
func (m *Messenger) steeringStats() (SteeringStats, error) {
	s := m.steer
	st := SteeringStats{Mode: m.cfg.Steer, Active: s.active()}
	var missing *bpf.LoadError
	switch {
	case s == nil:
		st.Why = "not bound"
		return st, nil
	case s.err != nil:
		st.Why = s.err.Error()
		if errors.As(s.err, &missing) {
			st.Why, st.Missing, st.Remedy = missing.Err.Error(), missing.Missing, missing.Remedy
		}
		return st, nil
	case s.closed:
		st.Why = "not bound any more"
	}
	st.Rules = s.ruleNames()
	if s.policy.Rules.Has(bpf.RuleHint) {
		st.HintPorts = s.policy.Hint.String()
	}
	for _, g := range s.groups {
		st.Migration = g.prog.Info().Migration
		counters := g.last
		if !s.closed {
			var err error
			if counters, err = g.prog.Counters(); err != nil {
				return st, err
			}
		}
		// The other slots wait for cores to be added.
		counters.Cores = counters.Cores[:min(len(counters.Cores), s.policy.Cores)]
		st.Groups = append(st.Groups, SteeringGroup{Addr: g.addr.String(), Counters: counters})
	}
	return st, nil
}
