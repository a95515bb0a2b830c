//go:build !epoll

package uring

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// ringDriver is a Driver over one io_uring.
type ringDriver struct {
	ring    *ring
	ops     opTable
	files   *files       // nil: plain descriptors
	fixed   *registered  // nil: memory is pinned by each request
	buffers *bufferRing  // nil: no Receive
	socks   []Socket     // by descriptor: the open sockets and files
	shut    map[int]bool // files that close when their last operation has ended

	out   []Completion // of the last Wait, or of the present one
	early []Completion // collected between two Waits
	again []Op         // operations to be queued again
	quiet []quietSend  // sends whose success is not reported, in order

	addrs *Memory // one socket address per place in the submission queue

	wake      waker
	wakeArmed bool // its poll is in flight
	woken     bool // since Wait began

	info  Info
	stats Stats
	can   ringCan
	err   error // final error of the ring
	state driverState
}

// ringCan are the features that requests ask for.
type ringCan struct {
	skip, acceptMulti, sendZC, reportUsage bool
}

type driverState uint8

const (
	stateOpen driverState = iota
	stateClosing
	stateClosed
)

// quietSend is a send that was queued as request number made.
type quietSend struct {
	op   Op
	made uint32
}

// User words of the driver's own requests. Slots of operations stay below.
const (
	ownBit   = 1 << 31
	ownNone  = ownBit + iota // no work for the answer
	ownWake                  // poll of the wake-up event
	ownProbe                 // see ring_probe.go
)

// openRing opens a driver over a ring; every error means that there is none.
func openRing(cfg Config) (Driver, error) {
	d := &ringDriver{}
	if err := d.open(&cfg); err != nil {
		_ = d.release() // the first error is returned
		return nil, err
	}
	return d, nil
}

func (d *ringDriver) open(cfg *Config) (err error) {
	set := newFeatureSet(cfg.Off)
	d.wake.closed = true // until it is open
	if d.ring, err = setupRing(cfg.Entries, set); err != nil {
		return err
	}
	if d.addrs, err = Map(int(d.ring.entries()) * sockaddrSize); err != nil {
		return err
	}
	if err = d.openWake(); err != nil {
		return err
	}
	d.probe(set)
	d.openBuffers(cfg, set)
	d.openFiles(cfg, set)
	d.openRegistered(cfg, set)
	d.can = ringCan{
		skip:        set.have(featureCQESkip),
		acceptMulti: set.have(featureAcceptMulti),
		sendZC:      set.have(featureSendZC),
		reportUsage: set.have(featureReportUsage),
	}
	d.info = Info{
		Backend:  Flavour,
		Receive:  d.buffers != nil,
		Features: set,
		Entries:  int(d.ring.entries()),
	}
	d.stats = Stats{}
	return d.armWake()
}

func (d *ringDriver) openWake() error {
	d.wake.closed = false
	if _, err := d.wake.open(); err != nil {
		return fmt.Errorf("open wake-up event: %w", err)
	}
	return nil
}

// openBuffers tries the kinds of buffer rings, best first.
func (d *ringDriver) openBuffers(cfg *Config, set featureSet) {
	if !set.have(featureRecvMulti) {
		set.lacks(featureBufferRing, "needs "+featureRecvMulti)
	}
	if !set.wanted(featureBufferRing) {
		set.lacks(FeatureIncremental, "needs "+featureBufferRing)
		return
	}
	for _, incremental := range [...]bool{true, false} {
		if incremental && !set.wanted(FeatureIncremental) {
			continue
		}
		n, size := bufferShape(cfg, incremental)
		b, err := newBufferRing(d.ring, n, size, incremental)
		if err == nil {
			d.buffers = b
			set.found(featureBufferRing)
			if incremental {
				set.found(FeatureIncremental)
			}
			return
		}
		if incremental {
			set.lacks(FeatureIncremental, err.Error())
		} else {
			set.lacks(featureBufferRing, err.Error())
		}
	}
}

func (d *ringDriver) openFiles(cfg *Config, set featureSet) {
	if !set.wanted(featureFileTable) {
		return
	}
	n := cfg.Files
	if n <= 0 {
		n = defaultFiles
	}
	f, errno := newFiles(d.ring, n)
	if errno != 0 {
		set.lacks(featureFileTable, errno.Error())
		return
	}
	if !d.closesAtOnce(f) {
		_ = f.unmap() // it was only the argument of updates
		set.lacks(featureFileTable, "this kernel closes what was in it late")
		return
	}
	d.files = f
	set.found(featureFileTable)
}

// release frees everything. No operation may be in flight.
func (d *ringDriver) release() error {
	var errs []error
	d.wake.close()
	if d.ring != nil {
		if d.buffers != nil {
			errs = append(errs, d.buffers.unregister(d.ring))
		}
		if d.fixed != nil { // closing lets go of it some time later
			_ = d.ring.register(unregisterBuffers, nil, 0)
		}
		d.ring.close()
	}
	errs = append(errs, d.fixed.forget(), d.files.unmap(), d.addrs.Unmap())
	d.state = stateClosed
	return errors.Join(errs...)
}

// Info implements Driver.
func (d *ringDriver) Info() Info { return d.info }

// Stats implements Driver.
func (d *ringDriver) Stats() Stats {
	s := d.stats
	s.InFlight = uint64(d.ops.inFlight)
	return s
}

// Wake implements Driver.
func (d *ringDriver) Wake() { d.wake.wake() }

// Wait implements Driver.
func (d *ringDriver) Wait(timeout time.Duration) ([]Completion, error) {
	if d.state != stateOpen {
		return nil, fmt.Errorf("ring: wait: %w", net.ErrClosed)
	}
	if !d.wakeArmed {
		// The kernel ends a multishot poll whose answer finds the completion
		// queue full. A new poll reports missed events at once. d.err has its
		// failure.
		_ = d.armWake()
	}
	d.out = append(d.out[:0], d.early...)
	d.early = d.early[:0]
	if len(d.out) > 0 || d.woken {
		timeout = 0 // it came while room was made for requests
	}
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	left := timeout
	for {
		expired := d.turn(left)
		if len(d.out) > 0 || d.woken || expired || d.err != nil || timeout == 0 {
			break
		}
		if timeout > 0 {
			if left = time.Until(deadline); left <= 0 {
				break
			}
		}
	}
	d.woken = false
	d.stats.Completions += uint64(len(d.out))
	if len(d.out) == 0 && d.err != nil {
		return nil, d.err
	}
	return d.out, nil
}

// turn is one system call and everything that came of it. It says whether the
// timeout passed.
func (d *ringDriver) turn(timeout time.Duration) (expired bool) {
	errno := d.enter(timeout)
	d.reap(&d.out)
	d.settle(&d.out)
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
