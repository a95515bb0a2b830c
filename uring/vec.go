package uring

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxVec is the largest number of pieces that the kernel takes in one send (NewVec).
const maxVec = 1024

// Vec is a list of pieces of memory that one request moves, in order: a send, or a read
// or write of a file. The list lies outside the Go heap, because the kernel reads it
// after Send has returned and goroutine stacks move. The pieces may be Go memory: heap
// objects do not move, and the Vec holds a reference to each until Reset. (The compiler
// moves a piece that began on a stack to the heap, because Append keeps it.)
//
// A Vec belongs to one thread at a time, and to the driver from the request
// until the final completion.
type Vec struct {
	mem  *Memory
	hdr  *msghdr
	iovs []iovec  // all of them, in mem
	refs [][]byte // the pieces in order, which keeps them alive; neighbours may be one
	n    int      // entries in use
	size int      // bytes in all of them

	// A partly sent list: entries before first are done, and cut has lost
	// its head, which was saved here.
	first int
	cut   int // -1: none
	saved iovec
}

// iovec and msghdr are laid out as in the kernel. Addresses are integers, so
// that a stale one left in unmanaged memory is never seen by a write barrier.
type iovec struct {
	base uintptr
	len  uintptr
}

type msghdr struct {
	name       uintptr
	namelen    uint32
	iov        uintptr
	iovlen     uintptr
	control    uintptr
	controllen uintptr
	flags      int32
}

// headerRoom keeps the entries after the header on a boundary of their own.
const headerRoom = 64

// NewVec returns an empty list with room for n pieces, 1 to 1024, the most that the kernel takes in one send. Free it.
func NewVec(n int) (*Vec, error) {
	if n < 1 || n > maxVec {
		return nil, fmt.Errorf("gather list of %d pieces: want 1 to %d: %w", n, maxVec, unix.EINVAL)
	}
	mem, err := Map(headerRoom + n*int(unsafe.Sizeof(iovec{})))
	if err != nil {
		return nil, fmt.Errorf("gather list of %d pieces: %w", n, err)
	}
	data := mem.Bytes()
	return &Vec{
		mem:  mem,
		hdr:  (*msghdr)(unsafe.Pointer(&data[0])),
		iovs: unsafe.Slice((*iovec)(unsafe.Pointer(&data[headerRoom])), n),
		refs: make([][]byte, 0, n),
		cut:  -1,
	}, nil
}

// Free gives the list back. The Vec must not be in a driver's hands.
func (v *Vec) Free() {
	if v.mem == nil {
		return
	}
	v.Reset()
	v.hdr, v.iovs, v.refs = nil, nil, nil
	_ = v.mem.Unmap() // fails only for an address that was never mapped
	v.mem = nil
}

// Reset empties the list and drops its references.
func (v *Vec) Reset() {
	clear(v.refs)
	v.refs = v.refs[:0]
	v.n, v.size, v.first, v.cut = 0, 0, 0, -1
}

// Append adds b at the end and says whether there was room. Memory that
// follows the previous piece without a gap costs no entry of its own. An
// empty b is ignored.
func (v *Vec) Append(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	base, size := uintptr(p), uintptr(len(b))
	if v.n > 0 {
		prev := &v.iovs[v.n-1]
		if prev.base+prev.len == base {
			prev.len += size
			v.size += len(b)
			// Neighbours may still be two objects: only the capacity of the
			// last piece says that it reaches as far.
			if last := &v.refs[len(v.refs)-1]; len(b) <= cap(*last)-len(*last) {
				*last = (*last)[:len(*last)+len(b)]
			} else {
				v.refs = append(v.refs, b)
			}
			return true
		}
	}
	if v.n == len(v.iovs) {
		return false
	}
	v.iovs[v.n] = iovec{base: base, len: size}
	v.n++
	v.size += len(b)
	v.refs = append(v.refs, b)
	return true
}

// AppendTo appends all bytes of the list to dst: for drivers that do not
// leave that to the kernel.
func (v *Vec) AppendTo(dst []byte) []byte {
	for _, b := range v.refs {
		dst = append(dst, b...)
	}
	return dst
}

// Fill copies src into the pieces, in order, as far as they reach, and returns the
// number of bytes: for drivers that do not leave that to the kernel.
func (v *Vec) Fill(src []byte) (n int) {
	for _, b := range v.refs {
		n += copy(b, src[n:])
	}
	return n
}

// Aligned says that every piece begins at a multiple of n bytes, a power of two, and
// is one long.
func (v *Vec) Aligned(n int) bool {
	for i := range v.iovs[:v.n] {
		if (v.iovs[i].base|v.iovs[i].len)&uintptr(n-1) != 0 {
			return false
		}
	}
	return true
}

// Aligned says that p begins at a multiple of n bytes, a power of two.
func Aligned(p []byte, n int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))&uintptr(n-1) == 0
}

// Size is the number of bytes in the list.
func (v *Vec) Size() int { return v.size }

// Count is the number of entries in use, after merging.
func (v *Vec) Count() int { return v.n }

// message fills the header with the rest of the list and returns its address, valid until
// the Vec changes.
func (v *Vec) message() uintptr {
	*v.hdr = msghdr{iovlen: uintptr(v.n - v.first)}
	if v.first < v.n {
		v.hdr.iov = uintptr(unsafe.Pointer(&v.iovs[v.first]))
	}
	return uintptr(unsafe.Pointer(v.hdr))
}

// left are the entries of the rest of the list.
func (v *Vec) left() []iovec { return v.iovs[v.first:v.n] }

// advance marks n more bytes as sent, so that message describes the rest.
func (v *Vec) advance(n int) {
	for n > 0 && v.first < v.n {
		e := &v.iovs[v.first]
		if uintptr(n) < e.len {
			if v.cut != v.first {
				v.cut, v.saved = v.first, *e
			}
			e.base += uintptr(n)
			e.len -= uintptr(n)
			return
		}
		n -= int(e.len)
		if v.cut == v.first {
			*e, v.cut = v.saved, -1
		}
		v.first++
	}
}

// rewind undoes every advance: the list is again as it was appended.
func (v *Vec) rewind() {
	if v.cut >= 0 {
		v.iovs[v.cut], v.cut = v.saved, -1
	}
	v.first = 0
}

// send transmits the rest at once, without blocking and without SIGPIPE.
func (v *Vec) send(fd int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), v.message(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	runtime.KeepAlive(v)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// Memory is an anonymous mapping outside the Go heap. It does not move, the collector does not
// see it, and only Unmap frees it: it must not hold Go pointers. A child process does not
// inherit it. It is not safe for concurrent use beyond that of its bytes.
type Memory struct {
	data []byte
	pins atomic.Int32 // drivers that have it registered
}

// Map returns size bytes of zeroed memory, rounded up to whole pages.
func Map(size int) (*Memory, error) {
	if size <= 0 {
		return nil, fmt.Errorf("map %d bytes: %w", size, unix.EINVAL)
	}
	page := os.Getpagesize()
	rounded := (size + page - 1) / page * page
	if rounded < size {
		return nil, fmt.Errorf("map %d bytes: %w", size, unix.ENOMEM)
	}
	data, err := unix.Mmap(-1, 0, rounded, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", rounded, err)
	}
	// The kernel writes into it: no child may share it. The flag also tells it from
	// the mappings of the Go runtime. Without it everything works as well.
	_ = unix.Madvise(data, unix.MADV_DONTFORK)
	return &Memory{data: data}, nil
}

// Bytes is the whole mapping, page-aligned; nil after Unmap. Slices of it must
// not be touched after Unmap.
func (m *Memory) Bytes() []byte { return m.data }

// Unmap gives the memory back to the kernel. No operation in flight may refer to it. A second
// call has no effect. Memory that a driver has registered stays, with EBUSY: requests on a
// later mapping at its address would move wrong bytes.
func (m *Memory) Unmap() error {
	if m == nil || m.data == nil {
		return nil
	}
	if m.pins.Load() > 0 {
		return fmt.Errorf("unmap %d bytes that are registered with a driver: %w", len(m.data), unix.EBUSY)
	}
	data := m.data
	m.data = nil
	if err := unix.Munmap(data); err != nil {
		return errors.Join(fmt.Errorf("unmap %d bytes", len(data)), err)
	}
	return nil
}
