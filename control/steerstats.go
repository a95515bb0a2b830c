package control

import "github.com/ringmsgr/ringmsgr/bpf"

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

// steeringStats takes a snapshot.
func (m *Messenger) steeringStats() (SteeringStats, error) {
	st, err := m.steering.Stats()
	out := SteeringStats{
		Mode: m.cfg.Steer, Active: st.Active, Rules: st.Rules, HintPorts: st.HintPorts, Migration: st.Migration,
		Why: st.Why, Missing: st.Missing, Remedy: st.Remedy,
	}
	for _, g := range st.Groups {
		out.Groups = append(out.Groups, SteeringGroup(g))
	}
	return out, err
}
