package control

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// steerFiles is the number of descriptors that package bpf hands over for one
// listening address.
const steerFiles = 6

// steeringFiles duplicates the descriptors of the steering programs and their
// maps, in the order of our addresses, none if nothing is steered. The caller
// closes them.
func (m *Messenger) steeringFiles() ([]*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.steer.active() || len(m.steer.groups) != len(m.addrs) {
		return nil, nil
	}
	var all []*os.File
	for _, g := range m.steer.groups {
		files, err := g.prog.Files()
		if err == nil && len(files) != steerFiles {
			err = fmt.Errorf("%d descriptors", len(files))
		}
		all = append(all, files...)
		if err != nil {
			closeFiles(all)
			return nil, err
		}
	}
	return all, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // a duplicate
	}
}

// adoptSteering takes the predecessor's steering programs. They stay in charge
// of their listeners, with the predecessor's policy until begin.
func (m *Messenger) adoptSteering(l *handoverLink, o *offer) error {
	fds, err := l.readFiles(recordSteering, int(o.steering))
	if err != nil {
		return err
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "steering"))
	}
	defer closeFiles(files)
	s := m.newSteering()
	m.mu.Lock()
	m.steer = s
	m.mu.Unlock()
	for i := 0; i+steerFiles <= len(files) && i/steerFiles < len(o.addrs); i += steerFiles {
		prog, err := bpf.FromFiles(files[i : i+steerFiles])
		if err != nil {
			// A program that we do not understand goes on without us.
			m.cfg.Logger.Warn("steering program not taken over", "addr", o.addrs[i/steerFiles], "err", err)
			continue
		}
		s.inherited = append(s.inherited, &steerGroup{addr: o.addrs[i/steerFiles].AddrPort, prog: prog})
	}
	return nil
}

// steerOn puts our own steering in force on the listeners that were taken
// over. What fails leaves them to the kernel's hash, as in Bind.
func (m *Messenger) steerOn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.steer
	if s == nil || s.closed {
		return
	}
	inherited := s.inherited
	s.inherited = nil
	if s.err != nil || len(inherited) < len(m.addrs) {
		for _, g := range inherited {
			if err := g.retire(); err != nil {
				m.cfg.Logger.Warn("steering program of the predecessor still in force", "addr", g.addr, "err", err)
			}
		}
		inherited = nil
	}
	for _, group := range m.groups() {
		if s.err == nil {
			s.continueGroup(m, group[0].Addr(), group, inherited)
		}
	}
	m.report(s)
}

// continueGroup steers the listeners of one address: by the program that is in
// charge of them, by one that takes its place if it has too few slots, or by a
// new one. Listener i of a group is in slot i, and on core i as long as there
// are so many cores.
func (s *steering) continueGroup(m *Messenger, addr netip.AddrPort, group []*dataplane.Listener, inherited []*steerGroup) {
	i := slices.IndexFunc(inherited, func(g *steerGroup) bool { return g.addr == addr })
	if i < 0 {
		s.begin(m.load, m.cfg.SteerTable, addr, group[0].FD())
	} else if old := inherited[i]; old.prog.Info().MaxCores >= s.policy.Cores {
		s.fail(old.closeRanks(len(group)))
		s.groups = append(s.groups, old)
	} else {
		s.fail(s.enlarge(m, old, group))
	}
	for i, l := range group[:min(len(group), s.policy.Cores)] {
		s.add(i, l.FD()) // no error if it is there
	}
	if i >= 0 && s.err == nil {
		s.fail(s.apply(s.groups[len(s.groups)-1].prog))
	}
}

// closeRanks empties the slots if the predecessor's listeners, which have come
// without gaps, were in others than the first ones: it had removed cores.
func (g *steerGroup) closeRanks(listeners int) error {
	live, err := g.prog.Cores()
	if err != nil || len(live) == 0 || len(live) <= listeners && live[len(live)-1] == len(live)-1 {
		return err
	}
	var errs []error
	for _, slot := range live {
		errs = append(errs, g.prog.Drain(slot))
	}
	return errors.Join(errs...)
}

// enlarge replaces a program by one with slots for all of our cores. Its table
// ends with it.
func (s *steering) enlarge(m *Messenger, old *steerGroup, group []*dataplane.Listener) error {
	prog, err := m.load(bpf.Config{MaxCores: s.policy.Cores, TableSize: m.cfg.SteerTable})
	if err != nil {
		return errors.Join(err, old.prog.Close())
	}
	s.groups = append(s.groups, &steerGroup{addr: old.addr, prog: prog})
	live, err := old.prog.Cores()
	if err == nil {
		err = s.apply(prog)
	}
	if err == nil {
		fds := make(map[int]int)
		for _, slot := range live {
			if slot < len(group) {
				fds[slot] = group[slot].FD()
			}
		}
		err = prog.Replace(old.prog, fds)
	}
	return errors.Join(err, old.prog.Close())
}

// retire takes a program out of service: it decides nothing any more, and its
// listeners are free for another one.
func (g *steerGroup) retire() error {
	errs := []error{g.prog.SetPolicy(bpf.Policy{})}
	live, err := g.prog.Cores()
	errs = append(errs, err)
	for _, slot := range live {
		errs = append(errs, g.prog.Drain(slot))
	}
	return errors.Join(append(errs, g.prog.Close())...)
}

// discard closes what was taken over and not used.
func (s *steering) discard() error {
	var errs []error
	for _, g := range s.inherited {
		errs = append(errs, g.prog.Close())
	}
	s.inherited = nil
	return errors.Join(errs...)
}
