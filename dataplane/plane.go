package dataplane

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Plane is a group of cores.
type Plane struct {
	cfg   Config
	cores []*Core
	fails chan error
	watch *stallWatch // nil: none
}

// New starts the cores, and waits until each has opened its driver.
func New(cfg Config) (*Plane, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Plane{cfg: cfg.withDefaults()}
	p.fails = make(chan error, p.cfg.Cores)
	var errs []error
	for i := range p.cfg.Cores {
		c := &Core{id: i, plane: p, cfg: &p.cfg, done: make(chan struct{})}
		var err error
		if p.cfg.Manual {
			err = c.open()
		} else {
			opened := make(chan error)
			go c.run(opened)
			err = <-opened
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
		p.cores = append(p.cores, c)
	}
	if len(errs) > 0 {
		p.Close()
		return nil, fmt.Errorf("start cores: %w", errors.Join(errs...))
	}
	p.watch = startStallWatch(p)
	return p, nil
}

// Cores is the number of cores.
func (p *Plane) Cores() int { return len(p.cores) }

// Core is core i.
func (p *Plane) Core(i int) *Core { return p.cores[i] }

// Info says what the cores opened; all of them open the same.
func (p *Plane) Info() uring.Info { return p.cores[0].info }

// Failures yields the error of a core whose driver broke. Its connections have
// faulted.
func (p *Plane) Failures() <-chan error { return p.fails }

func (p *Plane) failed(_ *Core, err error) {
	select {
	case p.fails <- err:
	default:
	}
}

// Close stops the cores: sockets are closed, links and handlers fault, memory
// is returned. It waits for the threads to end. Messages that users still hold
// stay valid.
func (p *Plane) Close() {
	p.watch.end()
	for _, c := range p.cores {
		c.stopping.Store(true)
		if p.cfg.Manual {
			c.close()
			close(c.done)
			continue
		}
		c.drv.Wake()
	}
	for _, c := range p.cores {
		<-c.done
	}
}
