package uring

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// waker is the only part of a reactor that other goroutines use: an eventfd whose number is
// guarded against use after it was closed.
type waker struct {
	// raised: a wake-up is on its way that Wait has not seen yet. Further ones cost no system
	// call.
	raised atomic.Bool

	mu     sync.RWMutex // guards closing against writing; writers share it
	fd     int
	closed bool

	writes atomic.Uint64
}

func (w *waker) open() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		w.closed = true
		return -1, err
	}
	w.fd = fd
	return fd, nil
}

func (w *waker) wake() {
	if w.raised.Swap(true) {
		return
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
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
	if !w.closed {
		w.closed = true
		unix.Close(w.fd)
	}
}
