package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

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
