//go:build !epoll

package uring

import (
	"errors"
	"fmt"
	"runtime"
)

// open opens the engine of cfg, which is valid.
func open(cfg Config) (Driver, error) {
	switch cfg.Backend {
	case Epoll:
		return openEpoll(cfg, "")
	case IOUring: // any ring will do
		return openRing(cfg)
	case Giouring:
		if Flavour == Giouring {
			return openRing(cfg)
		}
	default:
		d, err := openRing(cfg)
		if err == nil {
			return d, nil
		}
		e, epollErr := openEpoll(cfg, err.Error())
		if epollErr != nil {
			return nil, errors.Join(err, epollErr)
		}
		return e, nil
	}
	return nil, fmt.Errorf("backend %s is not in this program: build it with -tags giouring -ldflags=-checklinkname=0: %w",
		cfg.Backend, errors.ErrUnsupported)
}

// probeRing opens a small ring for a moment.
func probeRing(m *Machine) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := openRing(Config{Entries: 8})
	if err != nil {
		m.RingWhy = err.Error()
		return
	}
	info := d.Info()
	m.Ring, m.Receive, m.Features = true, info.Receive, info.Features
	if err := d.CloseDriver(); err != nil {
		m.RingWhy = err.Error()
	}
}
