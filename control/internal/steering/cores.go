package steering

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// slotRoom is the number of slots of a program, at least, so that cores can be
// added.
const slotRoom = 64

// slotsFor is the number of slots of a program for this number of cores.
func slotsFor(cores int) int { return min(max(2*cores, slotRoom), bpf.MaxCores) }

// Join gives a new core its slots. cores are the numbers of all cores, ascending;
// groups have the listeners of those that run, the new one included. With the
// second core there is a choice: steering begins. Without groups, and after
// Close, it does nothing.
func (s *Steerer) Join(core int, cores []int, groups []Group) {
	s.change(func() {
		switch {
		case s.phase != open || len(groups) == 0:
		case errors.Is(s.err, errOneCore):
			s.begin(cores, groups)
		case s.err == nil:
			s.join(core, groups)
		}
	})
}

func (s *Steerer) join(core int, groups []Group) {
	before := s.policy
	if core >= s.policy.Cores {
		s.widen(core + 1)
	}
	for _, g := range s.groups {
		if s.policy.Cores != before.Cores || s.policy.Hint != before.Hint {
			s.fail(s.apply(g.prog))
		}
		if s.err != nil {
			break
		}
		s.assignSlots(core, g, groups)
	}
	delete(s.gone, core)
	if s.err != nil {
		s.report()
	}
}

// widen makes the policy one for more cores. The number never falls while we are
// bound: so older hints stay right as long as possible.
func (s *Steerer) widen(cores int) {
	s.policy.Cores = cores
	if !s.policy.Rules.Has(bpf.RuleHint) {
		return
	}
	if err := s.setHint(); err != nil {
		s.log(s.cfg.Logger.Info, "no owner hints any more", "err", err)
	}
}

// assignSlots puts the listener of each core into the slot of the core. The new core
// may have got a listener of another core, which then needs its next one in the
// slot. The first listener of a core has the slot.
func (s *Steerer) assignSlots(core int, to *group, groups []Group) {
	for _, g := range groups {
		if g.Addr != to.addr {
			continue
		}
		seated := make(map[int]bool)
		for _, only := range []bool{true, false} {
			for _, l := range g.Listeners {
				if (l.Core == core) == only && !seated[l.Core] && s.err == nil {
					seated[l.Core] = true
					s.fail(to.prog.Add(l.Core, l.FD))
				}
			}
		}
	}
}

// Drop empties the slots of a core, so that no rule leads there; with forget it
// does not come back, and its pins end.
func (s *Steerer) Drop(core int, forget bool) {
	s.change(func() {
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
			// After a failure the slot empties itself with its listener.
			_ = drain(core)
		}
	})
}

// Migrates says that connections which wait at a listener that closes move to
// another one.
func (s *Steerer) Migrates() bool {
	s.lock()
	defer s.mu.Unlock()
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
