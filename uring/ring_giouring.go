//go:build giouring && !epoll

package uring

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"github.com/pawelgaczynski/giouring"
	"golang.org/x/sys/unix"
)

// Flavour is the name of the build flavour: which engine Open prefers.
const Flavour = Giouring

// ring is one io_uring driven through package giouring: its queues and its
// enter calls. Requests are filled by hand and register calls are our own,
// because the helpers for those pass wrong addresses. The twin without the tag
// has the same methods.
type ring struct {
	g        *giouring.Ring
	fd       int
	features uint32
	size     uint32
	tail     uint32
	until    unix.Timespec // for the kernel to read
}

// errNoSQArray is the reason why a ring has an array of its requests.
var errNoSQArray = errors.New("giouring writes the array all the same")

// newRing makes one attempt with exactly these flags.
func newRing(entries, completions, flags uint32) (*ring, error) {
	if flags&setupNoSQArray != 0 {
		return nil, unix.EINVAL
	}
	// Params is the kernel's structure, with fields that only it can set.
	p := ringParams{flags: flags | setupCQSize, cqEntries: completions}
	g := giouring.NewRing()
	if err := g.QueueInitParams(entries, (*giouring.Params)(unsafe.Pointer(&p))); err != nil {
		return nil, err
	}
	return &ring{g: g, fd: g.RingFd(), features: p.features, size: p.sqEntries}, nil
}

// close gives everything back. Requests in flight are cancelled by the kernel
// some time later, so there should be none.
func (r *ring) close() {
	if r.g != nil {
		r.g.QueueExit()
		r.g = nil
	}
}

// entries is the size of the submission queue.
func (r *ring) entries() uint32 { return r.size }

// next returns a zeroed request and its place in the queue, or nil if the
// queue is full.
func (r *ring) next() (*sqe, uint32) {
	e := (*sqe)(unsafe.Pointer(r.g.GetSQE()))
	if e == nil {
		return nil, 0
	}
	*e = sqe{}
	i := r.tail & (r.size - 1)
	r.tail++
	return e, i
}

// made counts the requests ever made; it wraps.
func (r *ring) made() uint32 { return r.tail }

// unsubmitted is the number of requests that the kernel has not taken yet.
func (r *ring) unsubmitted() uint32 { return r.g.SQReady() }

// poll submits, and lets the kernel finish requests without waiting.
func (r *ring) poll() unix.Errno {
	_, err := r.g.SubmitAndGetEvents()
	return errnoOf(err)
}

// events makes room for answers that the kernel kept back. It submits nothing.
func (r *ring) events() unix.Errno {
	_, err := r.g.GetEvents()
	return errnoOf(err)
}

// sleep submits and waits for an answer, or for the timeout if that is not
// negative: then ETIME.
func (r *ring) sleep(timeout time.Duration) unix.Errno {
	if timeout < 0 {
		_, err := r.g.SubmitAndWait(1)
		return errnoOf(err)
	}
	r.until = unix.NsecToTimespec(int64(timeout))
	_, err := r.g.SubmitAndWaitTimeout(1, (*syscall.Timespec)(unsafe.Pointer(&r.until)), nil)
	return errnoOf(err)
}

// errnoOf keeps an errno of the kernel. Errors of the package itself have no number and
// mean a broken call.
func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EINVAL
}

// peek returns the oldest answer, or nil.
func (r *ring) peek() *cqe {
	if r.g.CQReady() == 0 {
		return nil
	}
	c, err := r.g.PeekCQE() // makes no system call while one is ready
	if err != nil {
		return nil
	}
	return (*cqe)(unsafe.Pointer(c))
}

// skip is done with the answer that peek returned.
func (r *ring) skip() { r.g.CQAdvance(1) }

// overflowed says that the kernel keeps answers back, for lack of room.
func (r *ring) overflowed() bool { return r.g.CQHasOverflow() }

// registerRing fails: the package cannot undo the registration of the ring, which would keep
// the ring alive for as long as the thread.
func (r *ring) registerRing() error { return errors.New("giouring cannot undo it") }
