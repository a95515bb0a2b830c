//go:build !epoll

package uring

import (
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

// setupLadder are the optional flags, newest first: the order in which they
// are given up.
var setupLadder = [...]struct {
	feature string
	flag    uint32
}{
	{featureNoSQArray, setupNoSQArray},
	{featureDeferTaskrun, setupDeferTaskrun},
	{featureSingleIssuer, setupSingleIssuer},
	{featureCoopTaskrun, setupCoopTaskrun},
	{featureSubmitAll, setupSubmitAll},
}

// setupRing opens a ring with every flag that the kernel takes and set does not
// rule out, half as large as often as memory demands.
func setupRing(entries int, set featureSet) (*ring, error) {
	if entries == 0 {
		entries = defaultEntries
	}
	flags := ladderFlags(set)
	for n := uint32(entries); ; {
		r, err := newRing(n, min(n*queueRatio, maxCompletions), flags)
		var errno unix.Errno
		switch {
		case err == nil:
			if r.features&featNeeded != featNeeded {
				r.close()
				return nil, newSetupError("io_uring_setup", unix.EINVAL, "")
			}
			for _, step := range setupLadder {
				if flags&step.flag != 0 {
					set.found(step.feature)
				}
			}
			return r, nil
		case !errors.As(err, &errno):
			return nil, fmt.Errorf("set up ring: %w", err)
		case errno == unix.EINVAL && flags != 0:
			flags = lowerFlags(flags, set)
		case errno == unix.ENOMEM && n > minEntries:
			n /= 2
		default:
			return nil, newSetupError("io_uring_setup", errno, ringsDisabled())
		}
	}
}

func ladderFlags(set featureSet) uint32 {
	if !set.wanted(featureSingleIssuer) {
		set.lacks(featureDeferTaskrun, "needs "+featureSingleIssuer)
	}
	var flags uint32
	for _, step := range setupLadder {
		if set.wanted(step.feature) {
			flags |= step.flag
		}
	}
	return flags
}

// lowerFlags gives up the newest flag left.
func lowerFlags(flags uint32, set featureSet) uint32 {
	for _, step := range setupLadder {
		if flags&step.flag != 0 {
			set.lacks(step.feature, "io_uring_setup refuses the flag")
			return flags &^ step.flag
		}
	}
	return 0
}

// register makes one io_uring_register call. The kernel keeps no reference to arg.
func (r *ring) register(op uint32, arg unsafe.Pointer, n uint32) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
	return errno
}
