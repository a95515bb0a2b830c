//go:build !epoll && !giouring

package uring

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flavour is the name of the build flavour: which engine Open prefers.
const Flavour = IOUring

// ring is one io_uring: the two queues and the calls on them, nothing more.
// It belongs to one thread. Its twin (tag giouring) has the same methods.
type ring struct {
	fd       int // to mmap, register and close
	enterFD  uintptr
	enterBit uintptr // enterRegisteredRing once registered
	features uint32

	sqHead, sqTail, sqFlags *uint32
	sqArray                 []uint32 // nil: entries are taken in ring order
	sqes                    []sqe
	tail                    uint32 // requests made so far
	shown                   uint32 // of these, shown to the kernel

	cqHead, cqTail *uint32
	cqes           []cqe
	head           uint32 // answers read so far
	seen           uint32 // value of cqTail when last looked at

	maps  [2][]byte
	arg   waitArg // for the kernel to read, which names until
	until kernelTimespec
}

// errNoSQArray is the reason where a ring has an array of its requests.
var errNoSQArray = errOldKernel

// newRing makes one attempt with exactly these flags.
func newRing(entries, completions, flags uint32) (*ring, error) {
	p := ringParams{flags: flags | setupCQSize, cqEntries: completions}
	fd, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, errno
	}
	r := &ring{fd: int(fd), enterFD: fd, features: p.features}
	if err := r.mapQueues(&p); err != nil {
		r.close()
		return nil, err
	}
	r.arg.timespec = uint64(uintptr(unsafe.Pointer(&r.until)))
	return r, nil
}

func (r *ring) mapQueues(p *ringParams) error {
	sqSize := int(p.sq.array) + int(p.sqEntries)*4
	if p.flags&setupNoSQArray != 0 {
		sqSize = int(p.sq.entries) + 4 // the last of the header's fields that are used
	}
	cqSize := int(p.cq.cqes) + int(p.cqEntries)*int(unsafe.Sizeof(cqe{}))
	queues, err := r.mapQueue(0, offSQRing, max(sqSize, cqSize)) // both are one mapping
	if err != nil {
		return err
	}
	sqes, err := r.mapQueue(1, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})))
	if err != nil {
		return err
	}
	r.sqHead, r.sqTail, r.sqFlags = word(queues, p.sq.head), word(queues, p.sq.tail), word(queues, p.sq.flags)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&sqes[0])), p.sqEntries)
	if p.flags&setupNoSQArray == 0 {
		r.sqArray = unsafe.Slice(word(queues, p.sq.array), p.sqEntries)
		for i := range r.sqArray {
			r.sqArray[i] = uint32(i)
		}
	}
	r.cqHead, r.cqTail = word(queues, p.cq.head), word(queues, p.cq.tail)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&queues[p.cq.cqes])), p.cqEntries)
	r.tail = atomic.LoadUint32(r.sqTail)
	r.shown = r.tail
	r.head = atomic.LoadUint32(r.cqHead)
	r.seen = r.head
	return nil
}

func (r *ring) mapQueue(i int, offset int64, size int) (_ []byte, err error) {
	r.maps[i], err = unix.Mmap(r.fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	return r.maps[i], err
}

func word(data []byte, offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&data[offset])) }

// close gives everything back. Requests in flight are cancelled by the kernel
// some time later, so there should be none.
func (r *ring) close() {
	if r.enterBit != 0 {
		up := slotUpdate{offset: uint32(r.enterFD)}
		_ = r.register(unregisterRingFDs, unsafe.Pointer(&up), 1)
		r.enterBit = 0
	}
	for i, m := range r.maps {
		if m != nil {
			_ = unix.Munmap(m)
			r.maps[i] = nil
		}
	}
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
}

// entries is the size of the submission queue.
func (r *ring) entries() uint32 { return uint32(len(r.sqes)) }

// next returns a zeroed request and its place in the queue, or nil if the
// queue is full.
func (r *ring) next() (*sqe, uint32) {
	if r.unsubmitted() == uint32(len(r.sqes)) {
		return nil, 0
	}
	i := r.tail & uint32(len(r.sqes)-1)
	r.tail++
	e := &r.sqes[i]
	*e = sqe{}
	return e, i
}

// made counts the requests ever made; it wraps.
func (r *ring) made() uint32 { return r.tail }

// unsubmitted is the number of requests that the kernel has not taken yet.
func (r *ring) unsubmitted() uint32 { return r.tail - atomic.LoadUint32(r.sqHead) }

// poll submits, and lets the kernel finish requests without waiting. It goes past the Go
// scheduler, so it must not block.
func (r *ring) poll() unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, r.enterFD, r.show(), 0, enterGetEvents|r.enterBit, 0, 0)
	return errno
}

// events makes room for answers that the kernel kept back. It submits nothing.
func (r *ring) events() unix.Errno {
	r.commit()
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, r.enterFD, 0, 0, enterGetEvents|r.enterBit, 0, 0)
	return errno
}

// sleep submits and waits for an answer, or for the timeout if that is not
// negative: then ETIME.
func (r *ring) sleep(timeout time.Duration) unix.Errno {
	if timeout < 0 {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, r.enterFD, r.show(), 1, enterGetEvents|r.enterBit, 0, 0)
		return errno
	}
	r.until = kernelTimespec{int64(timeout / time.Second), int64(timeout % time.Second)}
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, r.enterFD, r.show(), 1, enterGetEvents|enterExtArg|r.enterBit,
		uintptr(unsafe.Pointer(&r.arg)), unsafe.Sizeof(waitArg{}))
	return errno
}

// show publishes new requests and answers read, and returns the number that
// the kernel may take.
func (r *ring) show() uintptr {
	r.commit()
	if r.shown != r.tail {
		r.shown = r.tail
		atomic.StoreUint32(r.sqTail, r.tail)
	}
	return uintptr(r.unsubmitted())
}

// peek returns the oldest answer, or nil.
func (r *ring) peek() *cqe {
	if r.head == r.seen {
		r.seen = atomic.LoadUint32(r.cqTail)
		if r.head == r.seen {
			return nil
		}
	}
	return &r.cqes[r.head&uint32(len(r.cqes)-1)]
}

// skip is done with the answer that peek returned.
func (r *ring) skip() { r.head++ }

// commit makes the room of the skipped answers known to the kernel.
func (r *ring) commit() {
	if atomic.LoadUint32(r.cqHead) != r.head {
		atomic.StoreUint32(r.cqHead, r.head)
	}
}

// overflowed says that the kernel keeps answers back, for lack of room.
func (r *ring) overflowed() bool { return atomic.LoadUint32(r.sqFlags)&sqCQOverflow != 0 }

// registerRing spares each enter the look-up of the descriptor.
func (r *ring) registerRing() error {
	up := slotUpdate{offset: anyOffset, data: uint64(r.fd)}
	if errno := r.register(registerRingFDs, unsafe.Pointer(&up), 1); errno != 0 {
		return errno
	}
	r.enterFD, r.enterBit = uintptr(up.offset), enterRegisteredRing
	return nil
}
