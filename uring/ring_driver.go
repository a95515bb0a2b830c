//go:build !epoll

package uring

import (
	"cmp"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ringDriver is a Driver over one io_uring.
type ringDriver struct {
	engine
	ring    *ring
	files   *files      // nil: plain descriptors
	fixed   *registered // nil: memory is pinned by each request
	buffers *bufferRing // nil: no Receive

	again []Op        // operations to be queued again
	quiet []quietSend // sends whose success is not reported, in order

	addrs [][sockaddrSize]byte // by place in the submission queue, for the kernel to read

	wakeArmed   bool // the poll of the wake-up is in flight
	reportUsage bool // zero-copy sends say whether the kernel copied
}

// quietSend is a send that was queued as request number made.
type quietSend struct {
	op   Op
	made uint32
}

// User words of the driver's own requests. Slots of operations stay below.
const (
	ownBit  = 1 << 31
	ownNone = ownBit + iota // no work for the answer
	ownWake                 // poll of the wake-up event
)

// openRing opens a driver over a ring; every error means that there is none.
func openRing(cfg Config) (Driver, error) {
	d := &ringDriver{engine: engine{name: "ring"}}
	d.rest = d
	if err := d.open(&cfg); err != nil {
		d.wake.close()
		_ = d.release(false) // the first error is returned
		return nil, err
	}
	return d, nil
}

func (d *ringDriver) open(cfg *Config) (err error) {
	set := newFeatureSet(cfg.tests.Off)
	if d.ring, err = setupRing(cfg.Entries, set); err != nil {
		return err
	}
	d.addrs = make([][sockaddrSize]byte, d.ring.entries())
	if _, err = d.wake.open(); err != nil {
		return fmt.Errorf("open wake-up event: %w", err)
	}
	for _, one := range [...]struct {
		feature string
		open    func(cfg *Config) error
	}{
		{featureRegisteredRing, func(*Config) error { return d.ring.registerRing() }},
		{featureIncremental, d.openBuffers},
		{featureFileTable, d.openFiles},
		{featureRegisteredBuffers, d.openRegistered},
		{featureReportUsage, d.openReports},
	} {
		if set.wanted(one.feature) {
			set.tried(one.feature, one.open(cfg))
		}
	}
	d.info = Info{
		Backend:  Flavour,
		Receive:  d.buffers != nil,
		Features: set,
		Entries:  int(d.ring.entries()),
	}
	err = d.armWake()
	if errno := d.ring.poll(); errno != 0 { // a filter may forbid this call alone
		err = newSetupError("io_uring_enter", errno, "")
	}
	return err
}

// openBuffers opens the ring of receive buffers.
func (d *ringDriver) openBuffers(cfg *Config) (err error) {
	d.buffers, err = newBufferRing(d.ring, cmp.Or(cfg.tests.Buffers, defaultBuffers), cmp.Or(cfg.tests.BufferSize, defaultBufferSize))
	return err
}

// openFiles opens the table of files. Kernels without featReadAttributes may close a file that
// has left the table only at the end of older requests on other files: a peer would not notice
// our close while an older connection lives.
func (d *ringDriver) openFiles(cfg *Config) (err error) {
	if d.ring.features&featReadAttributes == 0 {
		return errOldKernel
	}
	d.files, err = newFiles(d.ring, cmp.Or(cfg.tests.Files, defaultFiles))
	return err
}

// openReports has zero-copy sends report whether the kernel copied after all.
func (d *ringDriver) openReports(*Config) error {
	if d.reportUsage = d.ring.features&featRegisterByIndex != 0; !d.reportUsage {
		return errOldKernel
	}
	return nil
}

// release implements engineRest. To unmap memory of operations in flight would let the kernel
// write where others allocate.
func (d *ringDriver) release(kept bool) error {
	if kept {
		return nil
	}
	var err error
	if d.ring != nil {
		if d.buffers != nil {
			err = d.buffers.unregister(d.ring)
		}
		if d.fixed != nil { // closing lets go of it some time later
			_ = d.ring.register(unregisterBuffers, nil, 0)
		}
		d.ring.close()
	}
	d.fixed.forget()
	return err
}

// turn implements engineRest.
func (d *ringDriver) turn(timeout time.Duration) (expired bool) {
	if len(d.early) > 0 || len(d.again) > 0 || !d.wakeArmed && !d.closed {
		timeout = 0 // they came, or the poll of the wake-up ended, while room was made for requests
	}
	errno := d.enter(timeout)
	d.reap(&d.out)
	d.settle(&d.out)
	if !d.wakeArmed && !d.closed {
		// The kernel ends a multishot poll whose answer finds the completion
		// queue full. A new poll reports missed events at once. Answers that come
		// while room is made for it are behind those in out. d.err has its failure.
		_ = d.armWake()
	}
	d.requeue(&d.out)
	d.out = append(d.out, d.early...) // taken while making room for requests
	d.early = d.early[:0]
	switch errno {
	case 0, unix.EINTR, unix.EAGAIN, unix.EBUSY:
		// Success, or a shortage that the answers taken now may cure.
	case unix.ETIME:
		return true
	default:
		d.fail(errno)
	}
	return false
}

// fail makes errno the end of the ring.
func (d *ringDriver) fail(errno unix.Errno) {
	if d.err != nil {
		return
	}
	what := "the ring broke"
	switch errno {
	case unix.EEXIST, unix.EINVAL, unix.EBADF: // the last two: the ring is registered with one thread only
		what = "called from another thread than the one that opened the driver"
	case unix.EBADR:
		what = "the kernel had no memory for answers and dropped some"
		d.stats.Overflows++
	}
	d.err = fmt.Errorf("io_uring_enter: %s: %w", what, errno)
}

// stop implements engineRest.
func (d *ringDriver) stop() {
	if d.wakeArmed {
		d.queueCancel(ownWake)
	}
	for op, i := d.ops.live(0); op != 0; op, i = d.ops.live(i) {
		if o := d.ops.get(op); o.bits&opZero != 0 {
			// No caller waits for this send: reset, or its memory stays pinned
			// while the peer is silent.
			d.resetOnClose(o.sock)
		}
	}
}

// idle implements engineRest.
func (d *ringDriver) idle() bool { return !d.wakeArmed }

const (
	defaultEntries = 256
	maxCompletions = 1 << 16
	queueRatio     = 8 // completions per submission
)

// errOldKernel is the reason where the kernel answers like one without the feature.
var errOldKernel = errors.New("this kernel does not have it")

// setupRing opens a ring, half as large as often as memory demands. A kernel before 6.1 refuses
// it, as it does not know deferred task work.
func setupRing(entries int, set featureSet) (*ring, error) {
	flags := uint32(setupSubmitAll | setupCoopTaskrun | setupSingleIssuer)
	if set.wanted(featureDeferTaskrun) {
		flags |= setupDeferTaskrun
	}
	if set.wanted(featureNoSQArray) {
		flags |= setupNoSQArray
	}
	for n := uint32(cmp.Or(entries, defaultEntries)); ; {
		r, err := newRing(n, min(n*queueRatio, maxCompletions), flags)
		var errno unix.Errno
		switch {
		case err == nil:
			set.tried(featureDeferTaskrun, nil)
			set.tried(featureNoSQArray, nil)
			return r, nil
		case !errors.As(err, &errno):
			return nil, fmt.Errorf("set up ring: %w", err)
		case errno == unix.EINVAL && flags&setupNoSQArray != 0:
			flags &^= setupNoSQArray
			set.tried(featureNoSQArray, errNoSQArray)
		case errno == unix.ENOMEM && n > minEntries:
			n /= 2
		default:
			return nil, newSetupError("io_uring_setup", errno, sysctl("kernel/io_uring_disabled"))
		}
	}
}

// register makes one io_uring_register call. The kernel keeps no reference to arg.
func (r *ring) register(op uint32, arg unsafe.Pointer, n uint32) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
	return errno
}
