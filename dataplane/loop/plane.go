package loop

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Plane is a group of cores. Their number changes by AddCore and RemoveCore.
type Plane struct {
	cfg   Config
	info  atomic.Pointer[uring.Info] // replaced as a whole
	fails chan error
	watch *stallWatch     // nil: none
	lines *RationedLogger // for events that may come over and over

	// cores is replaced as a whole, so that it is read without a lock.
	cores  atomic.Pointer[[]*Core] // by number
	reaper sync.WaitGroup          // of cores that are on their way out

	mu     sync.Mutex // held while cores come and go
	closed bool       // guarded by mu
}

// maxCores is the largest number of cores of a plane.
const maxCores = 1024

// New starts the cores, and waits until each has opened its driver. If the kernel refuses
// a ring and uring.Auto allows epoll, the log says why, once for all cores.
func New(cfg Config) (*Plane, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Plane{cfg: cfg.withDefaults()}
	p.lines = NewRationedLogger(p.cfg.Logger, func() time.Time { return time.Time{}.Add(p.cfg.Now()) })
	p.fails = make(chan error, max(p.cfg.Cores, 64))
	cores := make([]*Core, 0, p.cfg.Cores)
	var err error
	for i := 0; i < p.cfg.Cores && err == nil; i++ {
		var c *Core
		if c, err = p.start(i); err == nil {
			cores = append(cores, c)
		}
	}
	p.cores.Store(&cores)
	if err != nil {
		_ = p.Close() // this is no core
		return nil, fmt.Errorf("start cores: %w", err)
	}
	p.info.CompareAndSwap(nil, &cores[0].info) // unless a core has a file already
	if why := p.Info().Fallback; why != "" {
		p.cfg.Logger.Warn("no ring, using epoll", "reason", why)
	}
	p.watch = startStallWatch(p)
	return p, nil
}

// start makes core i and waits until its driver is open.
func (p *Plane) start(i int) (*Core, error) {
	c := &Core{id: i, plane: p, cfg: &p.cfg, done: make(chan struct{}), reaped: make(chan struct{})}
	if p.cfg.Stepped == nil {
		opened := make(chan error)
		go c.run(opened)
		select {
		case err := <-opened:
			return c, err
		case <-c.done: // without a word
			return c, fmt.Errorf("core %d: %w", i, errExited)
		}
	}
	if err := c.open(); err != nil {
		return c, err
	}
	p.cfg.Stepped(c, (*stepper)(c))
	return c, nil
}

// All returns the cores by number, also failed and draining ones. The slice never changes: do not change it.
func (p *Plane) All() []*Core { return *p.cores.Load() }

// Cores is the number of cores.
func (p *Plane) Cores() int { return len(p.All()) }

// Core is the core with number i, nil if there is none. The numbers run from 0 to
// Cores()-1 until a core is removed.
func (p *Plane) Core(i int) *Core {
	all := p.All()
	if i >= 0 && i < len(all) && all[i].id == i {
		return all[i]
	}
	if at, ok := slices.BinarySearchFunc(all, i, func(c *Core, i int) int { return c.id - i }); ok {
		return all[at]
	}
	return nil
}

// Info describes the driver that the cores opened; all of them open the same.
func (p *Plane) Info() uring.Info { return *p.info.Load() }

// Failures yields the error of a core whose driver broke. Its connections have
// faulted.
func (p *Plane) Failures() <-chan error { return p.fails }

// Close stops the cores: sockets are closed, links and framers fault, memory is returned. It waits for the
// threads to end. Frames that users still hold stay valid. On a core it fails with ErrOnCore, and there is no
// other error. Any other goroutine; closing twice is no error.
func (p *Plane) Close() error {
	if p.OnCore() {
		return ErrOnCore
	}
	p.watch.end()
	p.mu.Lock()
	p.closed = true
	all := p.All()
	p.mu.Unlock()
	for _, c := range all {
		c.stopping.Store(true)
		if p.cfg.Stepped != nil && !c.endInTurn {
			c.end()
			continue
		}
		c.drv.Wake()
	}
	for _, c := range all {
		<-c.done
	}
	p.reaper.Wait()
	return nil
}

// errManyCores is the error of a plane that is full.
var errManyCores = errors.New("too many cores")
