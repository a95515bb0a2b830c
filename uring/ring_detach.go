//go:build !epoll

package uring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Detach implements Driver. Nothing names the file any more, in the kernel's
// queue or in ours, so that its place in the table can be taken away.
func (d *ringDriver) Detach(s Socket) (int, error) {
	if !d.isOpen(s) {
		return -1, fmt.Errorf("ring: detach: socket %d is not open: %w", s.FD(), unix.EBADF)
	}
	fd := s.FD()
	if d.ops.first(fd) != 0 {
		return -1, fmt.Errorf("ring: detach descriptor %d: %w", fd, unix.EBUSY)
	}
	d.socks[fd] = Socket{}
	if s.fixed > 0 {
		d.stats.Syscalls++
		d.files.remove(d.ring, s.fixed)
	}
	return fd, nil
}
