package control

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// errOneCore is why a single core is not steered.
var errOneCore = errors.New("there is one core only")

// steerRoom is the number of slots of a steering program, at least, so that
// cores can be added.
const steerRoom = 64

// slotsFor is the number of slots of a program for so many cores.
func slotsFor(cores int) int { return min(max(2*cores, steerRoom), bpf.MaxCores) }

// span is one more than the largest core number.
func (m *Messenger) span() int {
	all := m.plane.All()
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].ID() + 1
}

// live says whether a core has slots. Cores that never had any count, too.
func (s *steering) live(core int) bool { return !s.gone[core] }

// drop empties the slots of a core, so that no rule leads there; with forget it
// does not come back, and its pins end. The lock is held.
func (s *steering) drop(core int, forget bool) {
	if !s.active() || core >= s.policy.Cores {
		return
	}
	if s.gone == nil {
		s.gone = make(map[int]bool)
	}
	s.gone[core] = true
	for _, g := range s.groups {
		drain := g.prog.Drain
		if forget {
			drain = g.prog.Remove
		}
		// What fails leaves a slot that empties itself with its listener.
		_ = drain(core)
	}
}

// migrates says that connections which wait at a listener that closes move to
// another one. The lock is held.
func (s *steering) migrates() bool {
	if !s.active() {
		return false
	}
	for _, g := range s.groups {
		if !g.prog.Info().Migration {
			return false
		}
	}
	return true
}

// steerTo gives a new core its slots. The lock is held.
func (m *Messenger) steerTo(core *dataplane.Core) {
	s := m.steer
	if s == nil || s.closed || len(m.listeners) == 0 {
		return
	}
	if errors.Is(s.err, errOneCore) {
		m.steerFirst()
		return
	}
	if s.err != nil {
		return
	}
	before := s.policy
	if id := core.ID(); id >= s.policy.Cores {
		m.widenPolicy(id + 1)
	}
	for _, g := range s.groups {
		if s.policy.Cores != before.Cores || s.policy.Hint != before.Hint {
			s.fail(s.apply(g.prog))
		}
		if s.err != nil {
			break
		}
		s.seat(core, m.listeners, g)
		for _, other := range m.running() {
			if other != core {
				s.seat(other, m.listeners, g) // its listener may be the one that the new core got
			}
		}
	}
	delete(s.gone, core.ID())
	if s.err != nil {
		m.report(s)
	}
}

// widenPolicy is the policy for more cores. The number never falls while we
// are bound: the hints of before stay right as long as they can.
func (m *Messenger) widenPolicy(cores int) {
	s := m.steer
	s.policy.Cores = cores
	if !s.policy.Rules.Has(bpf.RuleHint) {
		return
	}
	hint, err := m.cfg.hintRange(cores)
	if err == nil && cores > maxHintCores {
		err = errManyHints
	}
	if err != nil {
		s.policy.Rules &^= bpf.UseHint
		s.policy.Hint = bpf.PortRange{}
		m.cfg.Logger.Info("no owner hints any more", "err", err)
		return
	}
	s.policy.Hint = hint
}

// seat puts the listener of a core in its slot of the group.
func (s *steering) seat(core *dataplane.Core, listeners []*dataplane.Listener, g *steerGroup) {
	for _, l := range listeners {
		if l.Core() == core && l.Addr() == g.addr {
			s.fail(g.prog.Add(core.ID(), l.FD()))
			return
		}
	}
}

// steerFirst begins to steer: with the second core there is a choice. The lock
// is held.
func (m *Messenger) steerFirst() {
	m.steer = m.newSteering()
	m.steer.take(m, m.groups())
	m.report(m.steer)
}
