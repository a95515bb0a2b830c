//go:build epoll

package uring

import (
	"errors"
	"fmt"
)

// Flavour is the name of the build flavour: which engine Open prefers.
const Flavour = Epoll

// open opens the engine of cfg, which is valid.
func open(cfg Config) (Driver, error) {
	switch cfg.Backend {
	case Epoll, Auto, "":
		return openEpoll(cfg, "")
	}
	return nil, fmt.Errorf("backend %s is not in this program, which was built with -tags epoll: build it without: %w",
		cfg.Backend, errors.ErrUnsupported)
}

// probeRing has none to open.
func probeRing(m *Machine) {
	m.RingWhy = "this program was built with -tags epoll, without any ring code"
}
