package loop

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/uring"
)

// DefaultPoolKeep is the default of Config.PoolKeep, in bytes.
const DefaultPoolKeep = 64 << 20

// ReceiveMode is how a connection receives once it has a framer.
type ReceiveMode string

// The receive modes.
const (
	// ReceiveAuto has each connection choose by the size of its frames: small ones as
	// with ReceiveBuffers, others as with ReceiveReady. Without receive
	// buffers of the ring (before Linux 6.12) it is ReceiveReady.
	ReceiveAuto ReceiveMode = "auto"
	// ReceiveBuffers arms a multishot receive into the ring's buffers. A
	// connection that meets a large data segment changes to ReceiveReady.
	ReceiveBuffers ReceiveMode = "buffers"
	// ReceiveReady waits for readiness through the ring and reads straight
	// into the place that a Placer names. It is the only mode of the epoll backend.
	ReceiveReady ReceiveMode = "ready"
)

// Config configures a plane. The zero value is usable: one core for each CPU that the
// process may use, with the best backend of the kernel.
type Config struct {
	// Name is the plane's in profiles: the threads of its cores have the pprof labels
	// "messenger", which is Name, and "core", the number. Goroutines that a callback on a
	// core starts inherit them.
	Name string
	// Cores is the number of cores, 0: one per usable CPU.
	Cores int
	// Pin binds each core's thread to a CPU of its own. Only with CPUs that
	// nothing else uses does that help: on shared ones it makes the tail three
	// times as long.
	Pin bool
	// Driver configures the I/O engine of each core.
	Driver uring.Config
	// Spin bounds the time for which a core polls before it sleeps, 0: not at all. The
	// core polls less where polling brings little. Use it where cores are not shared: it
	// buys latency with CPU time.
	Spin time.Duration
	// Receive forces a receive mode, "": ReceiveAuto.
	Receive ReceiveMode
	// LargeFrom is for framers: a data segment of at least this size, in bytes, is
	// received into a page-aligned buffer of its own, 0: 64 KiB. The connection then
	// reads by readiness (ReceiveReady), with ReceiveAuto until enough small frames have
	// come. Such a segment of 4 KiB or more can be written to a file with direct I/O
	// without a copy (File.WriteAt); below 64 KiB this pays only if it is written.
	LargeFrom int
	// TimeEvery is for framers: one frame in TimeEvery is timed, chosen at random
	// (dataplane.Counts.Latency, for the messenger's); 0: 32, negative: none. It is rounded up to a power of two.
	TimeEvery int
	// ZeroCopyFrom is the number of bytes in one write from which the device
	// reads the payload itself, 0: never. It does not pay on loopback; a
	// connection on which the kernel reports that it copied after all stops.
	ZeroCopyFrom int
	// PoolKeep bounds the free large buffers that a core keeps for re-use, in bytes, 0: 64 MiB.
	// Beyond that it keeps as many as were in use at once in the last seconds.
	PoolKeep int64
	// StallAfter is how long a core may stand still with work, at least, before
	// it is reported: it is logged with its stack, once, and CoreStats shows
	// it. Detection takes up to twice as long and costs the process two
	// wake-ups in that time. 0: one second, negative: never.
	StallAfter time.Duration
	// Open opens the driver of a core in its thread, nil: uring.Open with
	// Driver. A simulated network sets it.
	Open func(core int) (uring.Driver, error)
	// Map maps the memory that a core receives into and lends, nil: uring.Map. A test
	// of a shortage sets it. Any core calls it.
	Map func(size int) (*uring.Memory, error)
	// FileOps bounds the requests on files that the kernel has of a core, 0: 1024. The others
	// wait, file by file (CoreStats.Files).
	FileOps int
	// FileBytes bounds the buffers of a core that reads of files hold (File.ReadBuffer),
	// in bytes, until they are given back; 0: 512 MiB. Requests that find no room wait,
	// and accounts that hold bytes get Account.Wanted. Each Account may hold a 64th of
	// the bound (1 MiB at most) even if the others hold all of it; together these shares
	// exceed it by a quarter at most.
	FileBytes int64
	// fileTurn is the bound of defaultFileTurn; 0: that. Tests set it.
	fileTurn int
	// Disk opens and names files, nil: uring.Host, that of the machine. A simulated host has
	// its own. Any goroutine calls it.
	Disk uring.Disk
	// CloseFD closes the descriptor of a socket that no driver has, nil: close(2). A
	// simulated host has its own. Any goroutine calls it.
	CloseFD func(fd int)
	// Now is the monotonic clock, nil: the machine's.
	Now func() time.Duration
	// Wall is the wall clock of keepalive time stamps, nil: time.Now.
	Wall func() time.Time
	// Started is called on each core before its first work, on its thread; after an error
	// the core does not start. Ended is the last call on each started core, after the
	// end of its sockets. Neither may wait for a core, nor add, drain or close any: that waits
	// until Started has returned. nil: nothing.
	Started func(c *Core) error
	Ended   func(c *Core)
	// Failed is told of a core whose driver broke, on its thread, when its
	// connections have faulted. It must not block. nil: Plane.Failures and
	// CoreStats tell of it.
	Failed func(c *Core, err error)
	// Stepped is simnet's (Host.Run): it leaves the cores without threads, and gets each
	// of them once its driver is open, before it has work, on the goroutine that
	// starts it. nil: each core has a thread.
	Stepped func(c *Core, s stepped.Stepper)
	// Logger gets state changes, never frames; nil is silent.
	Logger *slog.Logger
}

// errConfig is wrapped by the errors of Validate.
var errConfig = errors.New("loop: invalid configuration")

// Validate returns every problem at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errConfig}, args...)...))
	}
	if c.Cores < 0 || c.Cores > maxCores {
		bad("cores = %d, want 0 to %d", c.Cores, maxCores)
	}
	if c.Spin < 0 || c.Spin > time.Second {
		bad("spin = %v, want 0 to 1s", c.Spin)
	}
	switch c.Receive {
	case "", ReceiveAuto, ReceiveBuffers, ReceiveReady:
	default:
		bad("receive mode %q, want auto, buffers or ready", c.Receive)
	}
	if c.LargeFrom < 0 || c.ZeroCopyFrom < 0 || c.PoolKeep < 0 || c.FileOps < 0 || c.FileBytes < 0 {
		bad("negative size")
	}
	return errors.Join(errs...)
}

// Opener is Open, or the default for nil.
func (c *Config) Opener() func(core int) (uring.Driver, error) {
	if c.Open != nil {
		return c.Open
	}
	driver := c.Driver
	return func(int) (uring.Driver, error) { return uring.Open(driver) }
}

func (c Config) withDefaults() Config {
	c.Cores = cmp.Or(c.Cores, runtime.NumCPU())
	c.Receive = cmp.Or(c.Receive, ReceiveAuto)
	c.LargeFrom = cmp.Or(c.LargeFrom, 64<<10)
	c.PoolKeep = cmp.Or(c.PoolKeep, DefaultPoolKeep)
	c.FileOps = cmp.Or(c.FileOps, defaultCoreFileOps)
	c.fileTurn = cmp.Or(c.fileTurn, defaultFileTurn)
	c.Disk = cmp.Or(c.Disk, uring.Host())
	c.StallAfter = cmp.Or(c.StallAfter, defaultStallAfter)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.TimeEvery = cmp.Or(c.TimeEvery, 32)
	if c.TimeEvery > 0 {
		c.TimeEvery = 1 << bits.Len32(uint32(min(c.TimeEvery, 1<<30)-1))
	}
	if c.CloseFD == nil {
		c.CloseFD = func(fd int) { _ = unix.Close(fd) }
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Duration { return time.Since(start) }
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	c.Open = c.Opener()
	if c.Map == nil {
		c.Map = uring.Map
	}
	return c
}
