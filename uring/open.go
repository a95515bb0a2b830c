package uring

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

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
	Receive  bool      `json:"receive"`            // KindReceive works
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

// SetupError names the call that refused a ring, the reason, and the remedy. It unwraps to
// the errno; it is errors.ErrUnsupported if the kernel or the host's policy rules rings
// out, so that only another backend or host helps.
type SetupError struct {
	Call   string     // for example io_uring_setup
	Errno  unix.Errno // of the kernel
	Cause  string     // in words
	Remedy string     // in words
}

// Error is one line.
func (e *SetupError) Error() string {
	return fmt.Sprintf("%s: %v: %s; %s", e.Call, e.Errno, e.Cause, e.Remedy)
}

// Unwrap returns the errno.
func (e *SetupError) Unwrap() error { return e.Errno }

// Is answers errors.Is for errors.ErrUnsupported.
func (e *SetupError) Is(target error) bool {
	if target != errors.ErrUnsupported {
		return false
	}
	switch e.Errno {
	case unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EOPNOTSUPP:
		return true
	}
	return false
}

// newSetupError translates errno of call. disabled is the value of the sysctl
// kernel.io_uring_disabled, or "" where there is none.
func newSetupError(call string, errno unix.Errno, disabled string) *SetupError {
	e := &SetupError{Call: call, Errno: errno}
	switch errno {
	case unix.ENOSYS:
		e.Cause = "this kernel has no io_uring, or a seccomp filter hides it"
		e.Remedy = "use Linux 6.1 or later, or the epoll backend"
	case unix.EPERM, unix.EACCES:
		switch disabled {
		case "2":
			e.Cause = "the sysctl kernel.io_uring_disabled is 2: rings are off for everybody"
			e.Remedy = "set it to 0, or use the epoll backend"
		case "1":
			e.Cause = "the sysctl kernel.io_uring_disabled is 1: rings need CAP_SYS_ADMIN or the group kernel.io_uring_group"
			e.Remedy = "set it to 0, join the group, or use the epoll backend"
		default:
			e.Cause = "a seccomp filter or security module forbids io_uring (containers do by default)"
			e.Remedy = "allow io_uring_setup, io_uring_enter and io_uring_register there, or use the epoll backend"
		}
	case unix.ENOMEM:
		e.Cause = "no memory for the ring even at its smallest, or the limit on locked memory is too low"
		e.Remedy = "raise RLIMIT_MEMLOCK (ulimit -l) or the memory limit of the container"
	case unix.EINVAL:
		e.Cause = "the kernel does not know a flag or an operation that a ring here cannot do without"
		e.Remedy = "use Linux 6.1 or later, or the epoll backend"
	case unix.EMFILE, unix.ENFILE:
		e.Cause = "no descriptor is left"
		e.Remedy = "raise RLIMIT_NOFILE (ulimit -n)"
	default:
		e.Cause = "the kernel refused"
		e.Remedy = "use the epoll backend"
	}
	return e
}

// sysctl reads a setting of the kernel; "" if the kernel does not have it.
func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Names of the ring's features, as in Info.
const (
	featureDeferTaskrun   = "defer_taskrun"
	featureNoSQArray      = "no_sqarray"
	featureRegisteredRing = "registered_ring"
	featureFileTable      = "file_table"
	// featureRegisteredBuffers is memory that stays pinned (RegisterMemory).
	featureRegisteredBuffers = "registered_buffers"
	// featureIncremental is the ring of buffers that receives share (KindReceive).
	featureIncremental = "incremental_buffers"
	featureReportUsage = "zc_report_usage"
)

// ringFeatures lists all of them with the kernel that brought them, in the order of Info. All
// else that a ring needs came with deferred task work, or before.
func ringFeatures() []Feature {
	return []Feature{
		{Name: featureDeferTaskrun, Since: "6.1"},
		{Name: featureNoSQArray, Since: "6.6"},
		{Name: featureRegisteredRing, Since: "5.18"},
		{Name: featureFileTable, Since: "6.14"},
		{Name: featureRegisteredBuffers, Since: "5.19"},
		{Name: featureIncremental, Since: "6.12"},
		{Name: featureReportUsage, Since: "6.3"},
	}
}

// featureSet collects the results of the trials. A feature that was neither switched off
// nor tried yet has no Why.
type featureSet []Feature

const whyOff = "switched off by a test"

// newFeatureSet starts with all features unknown, except for those in off.
func newFeatureSet(off []string) featureSet {
	set := featureSet(ringFeatures())
	for i := range set {
		if slices.Contains(off, set[i].Name) {
			set[i].Why = whyOff
		}
	}
	return set
}

func (s featureSet) at(name string) *Feature {
	return &s[slices.IndexFunc(s, func(f Feature) bool { return f.Name == name })]
}

// wanted says whether name is still worth a try.
func (s featureSet) wanted(name string) bool { return s.at(name).Why == "" }

// tried notes the result of a trial.
func (s featureSet) tried(name string, err error) {
	f := s.at(name)
	if f.Have = err == nil && f.Why == ""; err != nil && f.Why == "" {
		f.Why = err.Error()
	}
}
