package uring

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	minEntries = 2
	maxEntries = 1 << 15
	maxBuffers = 1 << 15
	maxWorkers = 1 << 10
	maxArena   = 1 << 30 // bytes of receive buffers together
)

// validate returns everything that is wrong with c, joined; nil if Open can
// work with it. Each problem wraps EINVAL.
func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(format+": %w", append(args, unix.EINVAL)...))
	}
	switch c.Backend {
	case "", Auto, IOUring, Giouring, Epoll:
	default:
		bad("backend %q: want %s, %s, %s or %s", c.Backend, Auto, IOUring, Giouring, Epoll)
	}
	if n := c.Entries; n != 0 && (n < minEntries || n > maxEntries || !powerOfTwo(n)) {
		bad("%d ring entries: want a power of two from %d to %d", n, minEntries, maxEntries)
	}
	if n := c.Buffers; n != 0 && (n < 1 || n > maxBuffers || !powerOfTwo(n)) {
		bad("%d receive buffers: want a power of two up to %d", n, maxBuffers)
	}
	if n := c.BufferSize; n != 0 && (n < 1 || n > maxArena || !powerOfTwo(n)) {
		bad("receive buffers of %d bytes: want a power of two up to %d", n, maxArena)
	}
	if n, size := max(c.Buffers, 1), max(c.BufferSize, 1); n > maxArena/min(size, maxArena) {
		bad("%d receive buffers of %d bytes: want at most %d bytes together", n, size, maxArena)
	}
	if c.Files < 0 || c.Files > maxEntries {
		bad("file table of %d places: want at most %d", c.Files, maxEntries)
	}
	if c.RegisteredBytes < 0 {
		bad("%d bytes of registered memory", c.RegisteredBytes)
	}
	if c.FileWorkers < 0 || c.FileWorkers > maxWorkers {
		bad("%d threads for files: want at most %d", c.FileWorkers, maxWorkers)
	}
	return errors.Join(errs...)
}

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }
