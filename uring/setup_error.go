package uring

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// SetupError names the call that refused a ring, the reason, and the remedy. It unwraps to
// the errno; it is errors.ErrUnsupported if the kernel or the host's policy rules rings
// out, so that only another backend or host helps.
type SetupError struct {
	Call   string     // for example io_uring_setup
	Errno  unix.Errno // of the kernel
	Cause  string     // in words
	Remedy string     // in words
}

// Error is one line.
func (e *SetupError) Error() string {
	return fmt.Sprintf("%s: %v: %s; %s", e.Call, e.Errno, e.Cause, e.Remedy)
}

// Unwrap returns the errno.
func (e *SetupError) Unwrap() error { return e.Errno }

// Is answers errors.Is for errors.ErrUnsupported.
func (e *SetupError) Is(target error) bool {
	if target != errors.ErrUnsupported {
		return false
	}
	switch e.Errno {
	case unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EOPNOTSUPP:
		return true
	}
	return false
}

// newSetupError translates errno of call. disabled is the value of the sysctl
// kernel.io_uring_disabled, or "" where there is none.
func newSetupError(call string, errno unix.Errno, disabled string) *SetupError {
	e := &SetupError{Call: call, Errno: errno}
	switch errno {
	case unix.ENOSYS:
		e.Cause = "this kernel has no io_uring, or a seccomp filter hides it"
		e.Remedy = "use Linux 6.1 or later, or the epoll backend"
	case unix.EPERM, unix.EACCES:
		switch disabled {
		case "2":
			e.Cause = "the sysctl kernel.io_uring_disabled is 2: rings are off for everybody"
			e.Remedy = "set it to 0, or use the epoll backend"
		case "1":
			e.Cause = "the sysctl kernel.io_uring_disabled is 1: rings need CAP_SYS_ADMIN or the group kernel.io_uring_group"
			e.Remedy = "set it to 0, join the group, or use the epoll backend"
		default:
			e.Cause = "a seccomp filter or security module forbids io_uring (containers do by default)"
			e.Remedy = "allow io_uring_setup, io_uring_enter and io_uring_register there, or use the epoll backend"
		}
	case unix.ENOMEM:
		e.Cause = "no memory for the ring even at its smallest, or the limit on locked memory is too low"
		e.Remedy = "raise RLIMIT_MEMLOCK (ulimit -l) or the memory limit of the container"
	case unix.EINVAL:
		e.Cause = "the kernel does not know a flag or an operation that a ring here cannot do without"
		e.Remedy = "use Linux 6.1 or later, or the epoll backend"
	case unix.EMFILE, unix.ENFILE:
		e.Cause = "no descriptor is left"
		e.Remedy = "raise RLIMIT_NOFILE (ulimit -n)"
	default:
		e.Cause = "the kernel refused"
		e.Remedy = "use the epoll backend"
	}
	return e
}

// ringsDisabled reads kernel.io_uring_disabled; "" if the kernel has no such
// setting.
func ringsDisabled() string { return sysctl("kernel/io_uring_disabled") }

func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
