package uring

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waker is the only part of a driver that other goroutines use: an eventfd whose number is
// guarded against use after it was closed. The zero waker is not open.
type waker struct {
	// raised: a wake-up is on its way that Wait has not seen yet. Further ones cost no system
	// call.
	raised atomic.Bool

	mu     sync.RWMutex // guards closing against writing; writers share it
	fd     int
	isOpen bool

	writes atomic.Uint64
}

func (w *waker) open() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	w.fd, w.isOpen = fd, err == nil
	return fd, err
}

func (w *waker) wake() {
	if w.raised.Swap(true) {
		return
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if !w.isOpen {
		return
	}
	w.writes.Add(1)
	rawEventWrite(w.fd)
}

// lower is called by Wait when it sees the event, before it returns: the next Wait sees a
// raise from now on.
func (w *waker) lower() { w.raised.Store(false) }

func (w *waker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOpen {
		w.isOpen = false
		unix.Close(w.fd)
	}
}

// Only epollWait with a timeout waits here. All other calls bypass the Go scheduler
// (RawSyscall): telling it costs more than some of these calls.

// kernelTimespec has 64-bit fields on every architecture.
type kernelTimespec struct{ sec, nsec int64 }

// epollWait fills d.events and returns their number. A negative timeout is
// none. It never returns before the timeout without events, but for EINTR and
// for waits that the kernel cannot express (weeks).
func (d *epollDriver) epollWait(timeout time.Duration) (int, unix.Errno) {
	d.stats.Syscalls++
	d.stats.Enters++
	syscall6 := unix.RawSyscall6
	if timeout != 0 {
		d.stats.Sleeps++
		syscall6 = unix.Syscall6
	}
	events := uintptr(unsafe.Pointer(&d.events[0])) // on the heap, and held by d
	var n uintptr
	var errno unix.Errno
	if d.pwait2 {
		var until uintptr
		if timeout >= 0 {
			d.timeout = kernelTimespec{int64(timeout / time.Second), int64(timeout % time.Second)}
			until = uintptr(unsafe.Pointer(&d.timeout))
		}
		n, _, errno = syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(d.epfd), events, uintptr(len(d.events)), until, 0, 0)
	} else {
		n, _, errno = syscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.epfd), events, uintptr(len(d.events)), timeoutMillis(timeout), 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// timeoutMillis rounds up, so that no wait ends too early.
func timeoutMillis(timeout time.Duration) uintptr {
	if timeout < 0 {
		return ^uintptr(0) // -1
	}
	ms := timeout / time.Millisecond
	if timeout%time.Millisecond != 0 {
		ms++
	}
	return uintptr(min(ms, 1<<31-1))
}

// rawEventWrite adds one to an eventfd. It fails only when the counter, which
// nobody reads, is full, after 2^64-2 of them; even then the event was raised.
func rawEventWrite(fd int) {
	one := uint64(1)
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
		if errno != unix.EINTR {
			return
		}
	}
}
