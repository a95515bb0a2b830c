//go:build !epoll

package uring

import (
	"cmp"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	defaultEntries = 256
	maxCompletions = 1 << 16
	queueRatio     = 8 // completions per submission
)

// errOldKernel is the reason where the kernel answers like one without the feature.
var errOldKernel = errors.New("this kernel does not have it")

// setupRing opens a ring, half as large as often as memory demands. A kernel before 6.1 refuses
// it, as it does not know deferred task work.
func setupRing(entries int, set featureSet) (*ring, error) {
	flags := uint32(setupSubmitAll | setupCoopTaskrun | setupSingleIssuer)
	if set.wanted(featureDeferTaskrun) {
		flags |= setupDeferTaskrun
	}
	if set.wanted(featureNoSQArray) {
		flags |= setupNoSQArray
	}
	for n := uint32(cmp.Or(entries, defaultEntries)); ; {
		r, err := newRing(n, min(n*queueRatio, maxCompletions), flags)
		var errno unix.Errno
		switch {
		case err == nil:
			set.tried(featureDeferTaskrun, nil)
			set.tried(featureNoSQArray, nil)
			return r, nil
		case !errors.As(err, &errno):
			return nil, fmt.Errorf("set up ring: %w", err)
		case errno == unix.EINVAL && flags&setupNoSQArray != 0:
			flags &^= setupNoSQArray
			set.tried(featureNoSQArray, errOldKernel)
		case errno == unix.ENOMEM && n > minEntries:
			n /= 2
		default:
			return nil, newSetupError("io_uring_setup", errno, ringsDisabled())
		}
	}
}

// register makes one io_uring_register call. The kernel keeps no reference to arg.
func (r *ring) register(op uint32, arg unsafe.Pointer, n uint32) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
	return errno
}
