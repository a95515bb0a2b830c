package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// errnoNotSupported is ENOTSUPP, the kernel's internal errno that attaching to
// a socket of the wrong kind lets out.
const errnoNotSupported = unix.Errno(524)

// Attach puts the program in charge of the SO_REUSEPORT group that listenerFD
// belongs to, all its listeners present and future. The program that was
// attached before, if any, is replaced in one step: no connection is decided
// without one of them. On an error the group is as before. The descriptor
// stays the caller's and is not needed afterwards.
//
// Sockets join a group by bind, so attach to a bound one. Multipath TCP, which
// package net listens with unless told not to, cannot be steered.
func (s *Steering) Attach(listenerFD int) error {
	return s.use(func() error { return s.attach(listenerFD) })
}

func (s *Steering) attach(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, s.prog.FD())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("attach steering program: %w: bound without SO_REUSEPORT: %w", errListener, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("attach steering program: %w: not plain TCP (net.ListenConfig needs SetMultipathTCP(false)): %w", errListener, err)
	case errors.Is(err, errnoNotSupported), errors.Is(err, unix.ENOTSOCK), errors.Is(err, unix.EBADF):
		return fmt.Errorf("attach steering program: %w: %w", errListener, err)
	}
	return fmt.Errorf("attach steering program: %w", err)
}

// Replace puts s in charge of a group that old steers, for instance to change
// the sizes that Config fixes. listeners are the descriptors of all cores that
// old has. A socket fits in one slot only, so the listeners move from the slots
// of old to the slots of s one by one; a rule that names a listener on its way is a miss.
// On an error the moved listeners go back and old stays attached. The table does
// not move: pin the peers in s before. old can be closed afterwards.
func (s *Steering) Replace(old *Steering, listeners map[int]int) error {
	var moved []int
	undo := func(err error) error {
		errs := []error{fmt.Errorf("replace steering program: %w", err)}
		for _, core := range moved {
			errs = append(errs, s.Drain(core), old.Add(core, listeners[core]))
		}
		return errors.Join(errs...)
	}
	cores := slices.Sorted(maps.Keys(listeners))
	for _, core := range cores {
		if err := old.Drain(core); err != nil {
			return undo(err)
		}
		moved = append(moved, core)
		if err := s.Add(core, listeners[core]); err != nil {
			return undo(err)
		}
	}
	if len(cores) == 0 {
		return fmt.Errorf("replace steering program: %w: none given", errListener)
	}
	if err := s.Attach(listeners[cores[0]]); err != nil {
		return undo(err)
	}
	return nil
}
