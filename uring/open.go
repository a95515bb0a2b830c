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
	tests   tuning
}

// tuning is what tests change, to come to the bounds of an engine. 0: the default.
type tuning struct {
	Buffers, BufferSize int   // of the receive ring, powers of two
	Files               int   // of the ring's table
	RegisteredBytes     int64 // bound of the memory that a ring has registered
	FileWorkers         int   // bound of the threads of an epoll engine that wait for files
	Off                 []string
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
	if n := c.Entries; n != 0 && (n < minEntries || n > maxEntries || n&(n-1) != 0) {
		bad("%d ring entries: want a power of two from %d to %d", n, minEntries, maxEntries)
	}
	return errors.Join(errs...)
}
