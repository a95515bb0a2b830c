package uring

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DiskSupport is how files in a directory can be read and written.
type DiskSupport struct {
	Alignment   Alignment `json:"alignment"`            // of direct I/O; zero: there is none
	DirectWhy   string    `json:"direct_why,omitempty"` // why not
	AIO         bool      `json:"linux_aio"`            // the epoll engine's way of direct I/O
	AIOWhy      string    `json:"linux_aio_why,omitempty"`
	NowaitRead  bool      `json:"nowait_read"`  // reads say that they would wait (RWF_NOWAIT)
	NowaitWrite bool      `json:"nowait_write"` // so do writes

	// Of a ring, with direct I/O. Polled completions no engine uses: a ring that has them
	// has nothing else, no socket and no sync, so that it would be a second one of each
	// core, which could then never sleep while it waits for the disk.
	Registered    bool   `json:"registered_memory"` // memory that stays pinned (FileDriver.RegisterMemory)
	RegisteredWhy string `json:"registered_memory_why,omitempty"`
	Polled        bool   `json:"polled_completions"` // the device can be polled (IORING_SETUP_IOPOLL)
	PolledWhy     string `json:"polled_completions_why,omitempty"`
}

// ProbeDisk finds out by trying, with a file in dir that it removes again. It waits for
// the disk. Any goroutine.
func ProbeDisk(dir string) (s DiskSupport, err error) {
	f, err := os.CreateTemp(dir, "uring-probe-*")
	if err != nil {
		return s, fmt.Errorf("probe disk: %w", err)
	}
	defer func() {
		f.Close()
		err = errors.Join(err, os.Remove(f.Name()))
	}()
	v, err := NewVec(1)
	if err != nil {
		return s, err
	}
	defer v.Free()
	v.Append(make([]byte, os.Getpagesize()))
	try := func(kind Kind, flags int32) int64 {
		o := operation{kind: kind, vec: v}
		o.begin(MakeFile(int(f.Fd()), Alignment{}), 0, 0, 0)
		o.sock = MakeSocket(int(f.Fd()))
		return o.transfer(flags, unix.Syscall6)
	}
	if res := try(KindWrite, 0); res != int64(v.Size()) {
		return s, fmt.Errorf("probe disk: write to %s: %w", f.Name(), unix.Errno(max(0, -res)))
	}
	s.NowaitRead = try(KindRead, unix.RWF_NOWAIT) == int64(v.Size()) // it is in the page cache
	s.NowaitWrite = try(KindWrite, unix.RWF_NOWAIT) == int64(v.Size())

	fd, err := Host{}.Open(f.Name(), FileOptions{Direct: Direct})
	if err != nil {
		s.DirectWhy = err.Error()
		if errno := unix.Errno(0); errors.As(err, &errno) {
			s.DirectWhy = errno.Error() // of a file that nobody knows
		}
		err = nil
		s.RegisteredWhy, s.PolledWhy = "needs direct I/O", "needs direct I/O"
	} else {
		s.Alignment, err = alignmentOf(fd)
		s.probeRing(fd)
		_ = unix.Close(fd)
	}
	var ctx uintptr
	if _, _, errno := unix.RawSyscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&ctx)), 0); errno != 0 {
		s.AIOWhy = errno.Error()
	} else {
		s.AIO = true
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, ctx, 0, 0)
	}
	return s, err
}
