package bpf

import (
	"errors"
	"fmt"

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
