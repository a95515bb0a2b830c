package uring

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Backend names an I/O engine.
type Backend string

// The backends. Auto is a wish, never an answer.
const (
	Auto     Backend = "auto"
	IOUring  Backend = "io_uring"
	Giouring Backend = "giouring"
	Epoll    Backend = "epoll"
)

// Config of a driver. The zero value is usable.
type Config struct {
	// Backend is the engine to open. Auto (and "") opens a ring, or epoll if the
	// kernel refuses one; Info then says why. With IOUring the refusal is an error;
	// in a program built with -tags giouring it opens a ring through that package.
	Backend Backend
	// Entries of the submission queue, a power of two; 0: 256. The
	// completion queue is 8 times as large.
	Entries int
	// Buffers and BufferSize of the receive ring, powers of two; 0: 8 of 128
	// KiB, which fits the L2 cache of current cores.
	Buffers    int
	BufferSize int
	// Files of the ring's table, 0: 4096. Sockets beyond use plain
	// descriptors.
	Files int
	// RegisteredBytes bounds the memory that a ring has registered (RegisterMemory). 0: 64 MiB,
	// or a sixteenth of RLIMIT_MEMLOCK where that holds for it.
	RegisteredBytes int64
	// FileWorkers bounds the threads of an epoll engine that wait for files, 0: 16. A thread
	// that waits takes one of GOMAXPROCS for some time.
	FileWorkers int
	off         []string // features that tests do without
}

// Info describes the engine that Open opened.
type Info struct {
	Backend  Backend   `json:"backend"`
	Fallback string    `json:"fallback,omitempty"` // why not the ring, if Auto fell back
	Receive  bool      `json:"receive"`            // Driver.Receive works
	Features []Feature `json:"features"`           // in a fixed order
	Entries  int       `json:"entries,omitempty"`  // of the submission queue, after halving for lack of memory
}

// Feature is one optional ability of the kernel.
type Feature struct {
	Name  string `json:"name"`
	Have  bool   `json:"have"`
	Since string `json:"since"`         // first kernel on which it is used
	Why   string `json:"why,omitempty"` // why it is not used
}

// Open opens a driver for the calling OS thread, which must stay locked to its
// goroutine (runtime.LockOSThread) until CloseDriver. The error of a refused
// ring is a *SetupError.
func Open(cfg Config) (Driver, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open driver: %w", err)
	}
	d, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open driver: %w", err)
	}
	return d, nil
}

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
