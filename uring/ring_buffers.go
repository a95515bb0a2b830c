//go:build !epoll

package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

const (
	// A small footprint decides: the ring walks through all of its memory, which fits the L2
	// cache of current cores.
	defaultBuffers    = 8
	defaultBufferSize = 128 << 10

	receiveGroup = 0
)

// bufferRing has the provided buffers of multishot receives, which share each of them
// (IOU_PBUF_RING_INC). A buffer belongs to the kernel until a completion says that it is used up, then to the holders of its slices;
// after the release of the last slice it belongs to the kernel again.
type bufferRing struct {
	entries []bufferEntry // shared with the kernel
	state   []bufferState
	data    []byte
	size    int
	tail    uint16

	ringMem, dataMem *Memory
}

type bufferState struct {
	used int    // bytes handed out since it was given to the kernel
	out  int32  // slices not yet released
	gen  uint16 // changes when it is given back, so that a late Release is seen
	done bool   // the kernel does not use it any more
}

// newBufferRing registers buffers with r. The errno EINVAL of the kernel means
// that it does not know them.
func newBufferRing(r *ring, n, size int) (*bufferRing, error) {
	b := &bufferRing{state: make([]bufferState, n), size: size}
	err := b.mapMemory(n)
	if err == nil {
		err = b.register(r)
	}
	if err != nil {
		_ = b.free() // the first error is returned
		return nil, err
	}
	for i := range b.state {
		b.give(uint16(i))
	}
	return b, nil
}

func (b *bufferRing) mapMemory(n int) (err error) {
	if b.ringMem, err = Map(n * int(unsafe.Sizeof(bufferEntry{}))); err != nil {
		return err
	}
	if b.dataMem, err = Map(n * b.size); err != nil {
		return err
	}
	b.entries = unsafe.Slice((*bufferEntry)(unsafe.Pointer(&b.ringMem.Bytes()[0])), n)
	b.data = b.dataMem.Bytes()
	return nil
}

func (b *bufferRing) register(r *ring) error {
	reg := bufferRegistration{
		ring:    uint64(uintptr(unsafe.Pointer(&b.entries[0]))),
		entries: uint32(len(b.entries)),
		group:   receiveGroup,
		flags:   bufferRingIncremental,
	}
	if errno := r.register(registerBufferRing, unsafe.Pointer(&reg), 1); errno != 0 {
		return errno
	}
	return nil
}

// unregister is for the last moment: no receive may be in flight.
func (b *bufferRing) unregister(r *ring) error {
	reg := bufferRegistration{group: receiveGroup}
	errno := r.register(unregisterBufferRing, unsafe.Pointer(&reg), 1)
	var err error
	if errno != 0 {
		err = fmt.Errorf("unregister receive buffers: %w", errno)
	}
	return errors.Join(err, b.free())
}

func (b *bufferRing) free() error {
	b.entries, b.data = nil, nil // a late use panics, and does not write to a later mapping
	return errors.Join(b.ringMem.Unmap(), b.dataMem.Unmap())
}

// give hands buffer id to the kernel.
func (b *bufferRing) give(id uint16) {
	s := &b.state[id]
	s.used, s.out, s.done = 0, 0, false
	s.gen++
	e := &b.entries[int(b.tail)&(len(b.entries)-1)]
	e.addr = uint64(uintptr(unsafe.Pointer(&b.data[int(id)*b.size])))
	e.len = uint32(b.size)
	e.id = id
	b.tail++
	// The tail shares a word with the first entry's id, which stays.
	first := &b.entries[0]
	var pair [4]byte
	binary.NativeEndian.PutUint16(pair[0:], first.id)
	binary.NativeEndian.PutUint16(pair[2:], b.tail)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&first.id)), binary.NativeEndian.Uint32(pair[:]))
}

// take turns a completion of n bytes with the flags of the kernel into the
// slice that it filled and the name for its release.
func (b *bufferRing) take(flags uint32, n int) ([]byte, Buffer) {
	id := uint16(flags >> cqeBufferShift)
	if int(id) >= len(b.state) {
		return nil, 0
	}
	s := &b.state[id]
	if flags&cqeBufferMore == 0 {
		s.done = true
	}
	if n <= 0 || n > b.size-s.used {
		if s.done && s.out == 0 {
			b.give(id)
		}
		return nil, 0
	}
	start := int(id)*b.size + s.used
	s.used += n
	s.out++
	return b.data[start : start+n : start+n], Buffer(uint32(id)+1) | Buffer(s.gen)<<16
}

// release takes one slice back. A name that is not held is ignored.
func (b *bufferRing) release(buf Buffer) {
	id := int(buf&0xFFFF) - 1
	if id < 0 || id >= len(b.state) {
		return
	}
	s := &b.state[id]
	if s.gen != uint16(buf>>16) || s.out == 0 {
		return
	}
	s.out--
	if s.done && s.out == 0 {
		b.give(uint16(id))
	}
}
