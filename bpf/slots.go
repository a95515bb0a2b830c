package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// SetPolicy puts p in force for all later connections. Each of them is decided
// by the old policy or by the new one as a whole. On an error the old one stays
// in force. The error wraps ErrPolicy if p is bad, also if its hint range meets
// this machine's ephemeral range.
func (s *Steering) SetPolicy(p Policy) error {
	if err := check(p, s.info.MaxCores); err != nil {
		return err
	}
	return s.change(func() error { return s.writePolicy(p) })
}

// check is validate with the limits of the machine.
func check(p Policy, maxCores int) error {
	if err := p.validate(); err != nil {
		return err
	}
	if p.Cores > maxCores {
		return fmt.Errorf("%w: %d cores, %d slots", ErrPolicy, p.Cores, maxCores)
	}
	if !p.Rules.Has(RuleHint) {
		return nil
	}
	ephemeral, err := ephemeralPorts()
	if err != nil {
		return err
	}
	if p.Hint.overlaps(ephemeral) {
		return fmt.Errorf("%w: hint range %v meets the ephemeral range %v", ErrPolicy, p.Hint, ephemeral)
	}
	return nil
}

// readPolicy returns the policy in force. CPUs is nil if it is the default.
func (s *Steering) readPolicy() (Policy, error) {
	var packed []steerPolicy
	if err := s.maps.Policies.Lookup(uint32(0), &packed); err != nil {
		return Policy{}, fmt.Errorf("read steering policy: %w", err)
	}
	return unpack(packed), nil
}

// writePolicy gives the program p, with stand-ins for cores without listener.
func (s *Steering) writePolicy(p Policy, without ...int) error {
	live, err := s.liveCores(without...)
	if err != nil {
		return err
	}
	if err := s.maps.Policies.Update(uint32(0), p.pack(s.info.CPUs, live), ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write steering policy: %w", err)
	}
	return nil
}

// Add puts the listener with descriptor listenerFD in the slot of core and the
// CPUs of core back to it, both with effect on the next SYN. A listener that
// is in the slot already is replaced in one step; it stays in the group and
// serves its connections. The descriptor stays the caller's. The socket must
// listen, on the address of the group and with SO_REUSEPORT. It can be in one
// slot only: it leaves another one of this Steering, which is empty then; in one
// of another Steering it is an error. A listener of another group is not refused,
// but every decision for it is a miss. Adding it again to the same slot is no
// error. When the socket closes, its slot empties by itself.
func (s *Steering) Add(core, listenerFD int) error {
	return s.changeCore(core, func() error {
		cookie, err := unix.GetsockoptUint64(listenerFD, unix.SOL_SOCKET, unix.SO_COOKIE)
		if err != nil {
			return fmt.Errorf("add core %d: %w: %w", core, errListener, err)
		}
		before, err := s.slot(core)
		if err != nil {
			return err
		}
		if before != cookie {
			err := s.fill(core, listenerFD)
			if errors.Is(err, unix.EBUSY) && s.leaveSlot(cookie) {
				err = s.fill(core, listenerFD)
			}
			if err != nil {
				return err
			}
		}
		p, err := s.readPolicy()
		if err == nil {
			err = s.writePolicy(p)
		}
		if err != nil && before == 0 {
			err = errors.Join(err, s.empty(core))
		}
		return err
	})
}

// leaveSlot empties the slot that a socket is in, and says whether it was in one.
func (s *Steering) leaveSlot(cookie uint64) bool {
	for core := range s.info.MaxCores {
		if c, err := s.slot(core); err == nil && c == cookie {
			return s.empty(core) == nil
		}
	}
	return false
}

func (s *Steering) fill(core, fd int) error {
	err := s.maps.Listeners.Update(uint32(core), uint64(fd), ebpf.UpdateAny)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("add core %d: %w: the socket is in another slot: %w", core, errListener, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, errnoNotSupported):
		return fmt.Errorf("add core %d: %w: it must listen on TCP with SO_REUSEPORT: %w", core, errListener, err)
	}
	return fmt.Errorf("add core %d: %w", core, err)
}

// Drain stops steering connections to core: its slot becomes empty, and other
// cores stand in for its CPUs. Table entries for it stay, miss, and count again
// after the next Add. Connections that wait in the listener's queue are not
// touched. The listener is still part of the group: connections that no rule
// places can reach it by the kernel's hash until it closes, so accept the queued
// connections, then close it. Draining an empty slot is no error.
func (s *Steering) Drain(core int) error {
	return s.changeCore(core, func() error { return s.drain(core) })
}

func (s *Steering) drain(core int) error {
	p, err := s.readPolicy()
	if err != nil {
		return err
	}
	// First the CPUs, then the slot, so that no CPU names an empty slot.
	if err := s.writePolicy(p, core); err != nil {
		return err
	}
	if err := s.empty(core); err != nil {
		return errors.Join(err, s.writePolicy(p))
	}
	return nil
}

func (s *Steering) empty(core int) error {
	if err := s.maps.Listeners.Delete(uint32(core)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("drain core %d: %w", core, err)
	}
	return nil
}

// Remove is Drain for a core that does not come back: the table entries that
// name it are deleted, too. If that fails the core stays drained.
func (s *Steering) Remove(core int) error {
	return s.changeCore(core, func() error {
		if err := s.drain(core); err != nil {
			return err
		}
		return errors.Join(forget[steerAddrPort](s.maps.ByAddrPort, core), forget[steerAddr](s.maps.ByAddr, core))
	})
}

// Cores returns the cores whose slot has a listener, ascending.
func (s *Steering) Cores() ([]int, error) {
	var live []int
	err := s.use(func() (err error) { live, err = s.liveCores(); return err })
	return live, err
}

func (s *Steering) liveCores(without ...int) ([]int, error) {
	var live []int
	for core := range s.info.MaxCores {
		if slices.Contains(without, core) {
			continue
		}
		cookie, err := s.slot(core)
		if err != nil {
			return nil, err
		}
		if cookie != 0 {
			live = append(live, core)
		}
	}
	return live, nil
}

// slot returns the cookie (SO_COOKIE) of the listener of core, 0 if none.
func (s *Steering) slot(core int) (uint64, error) {
	var cookie uint64
	err := s.maps.Listeners.Lookup(uint32(core), &cookie)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, fmt.Errorf("read slot of core %d: %w", core, err)
	}
	return cookie, nil
}

// changeCore is change for the slot of core.
func (s *Steering) changeCore(core int, f func() error) error {
	if err := s.checkCore(core); err != nil {
		return err
	}
	return s.change(f)
}

func (s *Steering) checkCore(core int) error {
	if core < 0 || core >= s.info.MaxCores {
		return fmt.Errorf("%w: core %d, %d slots", errCore, core, s.info.MaxCores)
	}
	return nil
}
