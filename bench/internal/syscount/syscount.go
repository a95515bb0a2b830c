// Package syscount counts the system calls of another process, all kinds and
// all threads, with the kernel's raw_syscalls tracepoint. That needs root or
// CAP_PERFMON. While a counter is open every system call of the machine is a
// little slower: do not measure times meanwhile.
package syscount

import (
	"encoding/binary"
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

// Method names this way of counting in reports.
const Method = "raw_syscalls tracepoint"

// Source knows the tracepoint.
type Source struct {
	id uint64
}

// Open finds out whether this process may count, by counting itself.
func Open() (*Source, error) {
	id, err := tracepointID()
	if err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	// The calls below must happen on a thread that is counted.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &Source{id: id}
	c, err := s.Start(os.Getpid())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if n, err := c.Read(); err != nil || n == 0 {
		return nil, errors.Join(fmt.Errorf("count system calls: the tracepoint counted %d calls of this process", n), err)
	}
	return s, nil
}

// Counter counts the calls of one process from Start on.
type Counter struct {
	fds []int
}

// Start begins to count the system calls of process pid: of its threads and of threads that
// they will start.
func (s *Source) Start(pid int) (*Counter, error) {
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	c := &Counter{}
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_TRACEPOINT,
		Config: s.id,
		Bits:   unix.PerfBitInherit,
	}
	attr.Size = uint32(binary.Size(attr))
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == unix.ESRCH {
			continue // the thread has ended
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("count system calls: %w", os.NewSyscallError("perf_event_open", err))
		}
		c.fds = append(c.fds, fd)
	}
	return c, nil
}

// Read returns the number of calls.
func (c *Counter) Read() (uint64, error) {
	var sum uint64
	var buf [8]byte
	for _, fd := range c.fds {
		n, err := unix.Read(fd, buf[:])
		if err != nil {
			return 0, fmt.Errorf("count system calls: %w", os.NewSyscallError("read", err))
		}
		if n != len(buf) {
			return 0, fmt.Errorf("count system calls: counter of %d bytes", n)
		}
		sum += binary.NativeEndian.Uint64(buf[:])
	}
	return sum, nil
}

// Close ends the counting.
func (c *Counter) Close() {
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
	c.fds = nil
}

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
func privateID() (id uint64, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		id, err = mountAndReadID()
	}()
	<-done
	return id, err
}

func mountAndReadID() (uint64, error) {
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
}
