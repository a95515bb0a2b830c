//go:build !epoll

package uring

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollPatience is how long a trial waits for a read of one page.
const pollPatience = 5 * time.Second

// probeRing reads from the file behind fd, which has direct I/O, into registered memory,
// and with completions that are polled for.
func (s *DiskSupport) probeRing(fd int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.RegisteredWhy = whyNot(tryDirectRead(fd, 0, true))
	s.Registered = s.RegisteredWhy == ""
	s.PolledWhy = whyNot(tryDirectRead(fd, setupIOPoll, false))
	if s.PolledWhy == "" && !hasPolledQueues(fd) {
		s.PolledWhy = "the device has no queues that are polled, and interrupts all the same"
	}
	s.Polled = s.PolledWhy == ""
}

func whyNot(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// tryDirectRead reads the first page of fd by a ring of its own with these flags.
func tryDirectRead(fd int, flags uint32, register bool) error {
	r, err := newRing(2, 2*queueRatio, flags)
	if err != nil {
		return fmt.Errorf("io_uring_setup: %w", err)
	}
	mem, err := Map(os.Getpagesize())
	if err != nil {
		r.close()
		return err
	}
	e, _ := r.next()
	p := mem.Bytes()
	e.opcode, e.fd, e.addr, e.len = opcodeRead, int32(fd), uint64(addressOf(p)), uint32(len(p))
	if register {
		piece := &iovec{base: addressOf(p), len: uintptr(len(p))}
		if _, errno := r.register(registerBuffers, unsafe.Pointer(piece), 1); errno != 0 {
			r.close()
			_ = mem.Unmap()
			return fmt.Errorf("io_uring_register: %w", errno)
		}
		e.opcode = opcodeReadFixed
	}
	res, ended := await(r)
	r.close()
	if !ended { // the memory is the kernel's: it is not freed
		return fmt.Errorf("a read does not end: %w", unix.ETIMEDOUT)
	}
	_ = mem.Unmap() // fails only for an address that was never mapped
	if res < 0 {
		return unix.Errno(-res)
	}
	return nil
}

// await submits one request and waits for its answer, in a way that any ring has.
func await(r *ring) (res int32, ended bool) {
	for begun := time.Now(); time.Since(begun) < pollPatience; {
		if errno := r.poll(); errno != 0 && errno != unix.EINTR && errno != unix.EAGAIN {
			return -int32(errno), r.unsubmitted() > 0
		}
		if c := r.peek(); c != nil {
			res = c.res
			r.skip()
			r.commit()
			return res, true
		}
		runtime.Gosched()
	}
	return 0, false
}

// hasPolledQueues asks the device of a file whether reads are polled for; kernels before
// 6.11 serve a polled read by an interrupt where there is nothing to poll. A device that
// does not say is believed to have them.
func hasPolledQueues(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return true
	}
	dev := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(st.Dev), unix.Minor(st.Dev))
	for _, path := range [...]string{"queue/io_poll", "../queue/io_poll"} { // of a disk, and of a partition
		if said, err := os.ReadFile(dev + path); err == nil {
			return strings.TrimSpace(string(said)) != "0"
		}
	}
	return true
}
