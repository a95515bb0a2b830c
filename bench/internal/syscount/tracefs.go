package syscount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const tracepoint = "events/raw_syscalls/sys_enter/id"

// tracepointID returns the number of the tracepoint.
func tracepointID() (uint64, error) {
	var errs []error
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		id, err := readID(root)
		if err == nil {
			return id, nil
		}
		errs = append(errs, err)
	}
	if os.Geteuid() != 0 {
		return 0, errors.Join(errs...)
	}
	return privateID()
}

// readID reads the number below a mounted tracefs.
func readID(root string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(root, tracepoint))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// privateID mounts tracefs privately: in a mount namespace of a thread of its own, which ends,
// with the mount, when the number is read.
func privateID() (uint64, error) {
	type answer struct {
		id  uint64
		err error
	}
	result := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		id, err := func() (uint64, error) {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return 0, fmt.Errorf("tracefs is not mounted: %w", os.NewSyscallError("unshare", err))
			}
			if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return 0, os.NewSyscallError("mount", err)
			}
			const root = "/sys/kernel/tracing"
			if err := unix.Mount("tracefs", root, "tracefs", 0, ""); err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					err = errors.New("this kernel has no tracepoints")
				}
				return 0, fmt.Errorf("mount tracefs: %w", err)
			}
			return readID(root)
		}()
		result <- answer{id, err}
	}()
	a := <-result
	return a.id, a.err
}
