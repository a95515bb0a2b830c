package uring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Detach implements Driver. The descriptor lives on, so that it has to be taken
// out of the epoll set by name.
func (d *epollDriver) Detach(s Socket) (int, error) {
	e := d.sock(s)
	if e == nil {
		return -1, fmt.Errorf("epoll: detach: no such socket: %w", unix.EBADF)
	}
	fd := s.FD()
	if d.ops.first(fd) != 0 {
		return -1, fmt.Errorf("epoll: detach descriptor %d: %w", fd, unix.EBUSY)
	}
	if errno := d.register(unix.EPOLL_CTL_DEL, s); errno != 0 {
		return -1, fmt.Errorf("epoll: detach descriptor %d: %w", fd, errno)
	}
	e.open = false
	return fd, nil
}
