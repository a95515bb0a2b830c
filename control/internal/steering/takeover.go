package steering

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// filesPerGroup is the number of descriptors that package bpf hands over for one
// listening address.
const filesPerGroup = 6

// Files duplicates the descriptors of the programs and their maps, in the order of the
// addresses: none unless exactly this number of addresses is steered. The caller closes
// them.
func (s *Steerer) Files(addrs int) ([]*os.File, error) {
	if !s.now.Load().active {
		return nil, nil
	}
	s.lock()
	defer s.mu.Unlock()
	if !s.active() || len(s.groups) != addrs {
		return nil, nil
	}
	var all []*os.File
	for _, g := range s.groups {
		files, err := g.prog.Files()
		if err == nil && len(files) != filesPerGroup {
			err = fmt.Errorf("%d descriptors", len(files))
		}
		all = append(all, files...)
		if err != nil {
			for _, f := range all {
				_ = f.Close() // a duplicate
			}
			return nil, err
		}
	}
	return all, nil
}

// Adopt takes the predecessor's programs for addresses in this order. They stay
// in charge of their listeners, with the predecessor's policy until Continue. The
// caller closes the files.
func (s *Steerer) Adopt(taken uint64, cores []int, files []*os.File, addrs []netip.AddrPort) {
	s.change(func() {
		s.adopted = taken
		s.decide(cores)
		for i, addr := range addrs {
			if (i+1)*filesPerGroup > len(files) {
				return
			}
			prog, err := bpf.FromFiles(files[i*filesPerGroup : (i+1)*filesPerGroup])
			if err != nil {
				// A program of an unknown version goes on without us.
				s.log(s.cfg.Logger.Warn, "steering program not taken over", "addr", addr, "err", err)
				continue
			}
			s.inherited = append(s.inherited, &group{addr: addr, prog: prog})
		}
	})
}

// Continue puts our own steering in force on the listeners that were taken over, if there
// is a program for each address or none is left. After a failure they are left to the
// kernel's hash, as in Begin. After Close it does nothing.
func (s *Steerer) Continue(groups []Group) {
	s.change(func() {
		if s.phase != open {
			return
		}
		if len(s.inherited) < len(groups) {
			s.retireInherited()
		}
		for _, g := range groups {
			if s.err == nil {
				s.continueGroup(g)
			}
		}
		s.retireInherited() // after a failure there are some
		s.report()
	})
}

// continueGroup steers the listeners of one address: by the program in charge of them, or by
// a new one if there is none, or one with too few slots, whose table is lost. Listener i of a
// group is in slot i, and on core i if there is such a core.
func (s *Steerer) continueGroup(to Group) {
	list := to.Listeners
	var own *group
	if i := slices.IndexFunc(s.inherited, func(g *group) bool { return g.addr == to.Addr }); i >= 0 {
		own = s.inherited[i]
		s.inherited = slices.Delete(s.inherited, i, i+1)
	}
	if own != nil && own.prog.Info().MaxCores < s.policy.Cores {
		s.retire(own)
		own = nil
	}
	if own == nil {
		s.start(to.Addr, list[0].FD)
	} else {
		s.groups = append(s.groups, own)
	}
	for i, l := range list[:min(len(list), s.policy.Cores)] {
		// No error if it is there. If the predecessor had removed cores it leaves the slot of a later one.
		s.add(Listener{Core: i, FD: l.FD})
	}
	if own != nil && s.err == nil {
		s.fail(s.apply(own.prog))
	}
}

// retire takes a program of the predecessor out of service: it decides nothing any more, and
// its listeners are free for another one.
func (s *Steerer) retire(g *group) {
	errs := []error{g.prog.SetPolicy(bpf.Policy{})}
	live, err := g.prog.Cores()
	errs = append(errs, err)
	for _, slot := range live {
		errs = append(errs, g.prog.Drain(slot))
	}
	if err := errors.Join(append(errs, g.prog.Close())...); err != nil {
		s.log(s.cfg.Logger.Warn, "steering program of the predecessor still in force", "addr", g.addr, "err", err)
	}
}

// retireInherited retires the inherited programs that are left.
func (s *Steerer) retireInherited() {
	for _, g := range s.inherited {
		s.retire(g)
	}
	s.inherited = nil
}

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
	return s.active() && !slices.ContainsFunc(s.groups, func(g *group) bool { return !g.prog.Info().Migration })
}
