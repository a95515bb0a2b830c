package load

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// awaitEvents waits for events of connections, for so long at most: none are no error.
func awaitEvents(epoll int, events []unix.EpollEvent, longest time.Duration) (n int, err error) {
	ms := longest.Milliseconds()
	if wait := unix.NsecToTimespec(int64(longest)); ms < pollEach.Milliseconds() {
		// epoll_wait(2) knows milliseconds, and a request may be due within less.
		if _, err := unix.Ppoll([]unix.PollFd{{Fd: int32(epoll), Events: unix.POLLIN}}, &wait, nil); err != nil && err != unix.EINTR {
			return 0, os.NewSyscallError("ppoll", err)
		}
		ms = 0
	}
	n, err = unix.EpollWait(epoll, events, int(ms))
	if err != nil && err != unix.EINTR {
		return 0, os.NewSyscallError("epoll_wait", err)
	}
	return max(0, n), nil
}

// stalled is the error of a server from which nothing has come for so long, while requests
// are open.
func stalled(open int, silent time.Duration) error {
	if open == 0 || silent < StallAfter {
		return nil
	}
	return fmt.Errorf("%w: %d requests open for %v", ErrStalled, open, silent)
}

// receive reads what is there.
func receive(fd int, p []byte) (int, error) {
	n, err := unix.Read(fd, p)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, fmt.Errorf("%w: the server closed", ErrReply)
	}
	return n, nil
}

// watch has a connection wake its client when there is room to send again, if something is
// left that waits for it; blocks keeps whether it does.
func watch(epoll, fd, index int, blocks *bool, left bool) error {
	if left == *blocks {
		return nil
	}
	*blocks = left
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if left {
		ev.Events |= unix.EPOLLOUT
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_MOD, fd, &ev))
}
