package steering

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// ErrUnsteered is returned for pins where no table is in force.
var ErrUnsteered = errors.New("control: connections are not steered by a table")

// Pin changes the tables of all listening addresses. check is asked first, under
// the Steerer's lock: a core that it finds is not dropped before it is pinned.
func (s *Steerer) Pin(check func() error, change func(*bpf.Steering) error) error {
	s.lock()
	defer s.mu.Unlock()
	if err := check(); err != nil {
		return err
	}
	switch {
	case s.phase == unbound:
		return fmt.Errorf("%w: not bound", ErrUnsteered)
	case s.err != nil:
		return fmt.Errorf("%w: %w", ErrUnsteered, s.err)
	case s.phase == closed:
		return fmt.Errorf("%w: not bound any more", ErrUnsteered)
	case !s.policy.Rules.Has(bpf.RuleAddr):
		return fmt.Errorf("%w: mode %s", ErrUnsteered, s.cfg.Mode)
	}
	s.pins.Store(true)
	var errs []error
	for _, g := range s.groups {
		errs = append(errs, change(g.prog))
	}
	return errors.Join(errs...)
}

// Pinned is the core that the table has for a peer. Where nobody was ever pinned
// it makes no system call.
func (s *Steerer) Pinned(peer netip.AddrPort) (core int, ok bool) {
	table := s.now.Load().table
	if table == nil || !s.pins.Load() {
		return 0, false
	}
	s.waits()
	core, ok, err := table.Pinned(peer)
	if err == nil && !ok {
		core, ok, err = table.Pinned(netip.AddrPortFrom(peer.Addr(), 0))
	}
	return core, ok && err == nil
}
