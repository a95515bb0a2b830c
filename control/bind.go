package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// ErrNotBound: the messenger has no address that it could give up.
var ErrNotBound = errors.New("control: not bound")

// ErrNoPort: no port is free to listen on. It names the ports that were tried,
// and wraps what the kernel said of the last one.
var ErrNoPort = binding.ErrNoPort

// Bind listens on one or more addresses, each on every core, and returns them with their
// ports. Who connects to a v2: address speaks msgr2 with us, to a v1: address msgr1. For a port of 0 it takes the next free one of Config.BindPorts, or
// without such a range one that the kernel chooses. A port on which anybody
// else listens is never shared with him: the error is ErrNoPort, after
// Config.BindRetries. If one of the addresses cannot be bound, none is, and the
// messenger stays usable. A messenger that never binds is a client only.
//
// An address without an IP (0.0.0.0, ::) listens on all of them. Peers are told
// that of our end of the first connection, and no other one later; a peer that
// comes by another one is told that as well.
//
// A messenger is bound once; Rebind gives it other ports. Not for a dispatcher
// on a core.
func (m *Messenger) Bind(addrs ...wire.Addr) (wire.AddrVec, error) {
	done, err := m.beginBinding(context.Background())
	if err != nil {
		return nil, err
	}
	defer done()
	m.mu.Lock()
	again, taken := m.bound, m.listeners.Taken()
	m.mu.Unlock()
	switch {
	case again:
		return nil, fmt.Errorf("%w: bound twice", ErrConfig)
	case len(addrs) == 0:
		return nil, fmt.Errorf("%w: no address to bind", ErrConfig)
	}
	e, err := m.listenAll(context.Background(), addrs, func(a wire.Addr) binding.Ports {
		if port := a.AddrPort.Port(); port != 0 {
			return binding.OnePort(port)
		}
		return binding.Ports{From: m.cfg.BindPorts}
	})
	if err != nil {
		return nil, err
	}
	m.steering.Begin(taken, m.Cores(), steeringGroups(e.groups, anyCore))
	now := m.cfg.Clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	listening := !m.down
	if listening {
		_, listening = m.listeners.Swap(e.groups, taken)
	}
	if !listening { // Shutdown or Unbind was called meanwhile: it counts as the later call
		go func() {
			m.steering.Close(taken + 1)
			e.close()
		}()
	}
	if m.down {
		return nil, ErrShutdown
	}
	m.setBound(e)
	if m.globalSeq == 0 && m.cfg.Nonce != nil {
		// With a fixed nonce a restarted process has the address of the one
		// before, and peers remember the global_seq of that: begin above it.
		m.globalSeq, m.globalSeq1 = session.GlobalSeq(now.UnixMilli()), session.GlobalSeq(now.Unix())
	}
	return slices.Clone(m.addrs), nil
}

// beginBinding has Bind and Rebind run one at a time, and not while cores come
// and go or a hand-over is under way; one that begins meanwhile waits. done ends
// it.
func (m *Messenger) beginBinding(ctx context.Context) (done func(), err error) {
	unlock, err := m.resizing.Lock(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mayResize(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// newBinder makes what opens our listeners.
func (m *Messenger) newBinder() *binding.Binder {
	return &binding.Binder{
		Cores: m.running, Accept: m.accepted, Retries: m.cfg.BindRetries,
		Pause: func(ctx context.Context) error {
			over := make(chan struct{})
			stop := m.cfg.Clock.AfterFunc(m.cfg.BindRetryDelay, func() { close(over) })
			defer stop()
			select {
			case <-over:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-m.ctx.Done():
				return context.Cause(m.ctx)
			}
		},
	}
}

// endpoints are the listeners of all addresses.
type endpoints struct {
	addrs  wire.AddrVec    // without their nonce
	groups []binding.Group // of each address
}

func (e *endpoints) close() {
	for _, g := range e.groups {
		binding.Close(g)
	}
}

// listenAll listens on all addresses, or on none.
func (m *Messenger) listenAll(ctx context.Context, addrs []wire.Addr, ports func(wire.Addr) binding.Ports) (*endpoints, error) {
	e := &endpoints{}
	var places []binding.Place
	for _, a := range addrs {
		switch {
		case a.Type != wire.AddrMsgr2 && !isMsgr1(a):
			return nil, fmt.Errorf("%w: cannot listen on %v: want a v2 or a v1 address", ErrConfig, a)
		case isMsgr1(a):
			if err := m.cfg.msgr1(); err != nil {
				return nil, err
			}
		}
		if !a.AddrPort.IsValid() {
			return nil, fmt.Errorf("%w: cannot listen on %v: no address", ErrConfig, a)
		}
		places = append(places, binding.Place{Name: a.String(), IP: a.AddrPort.Addr(), Ports: ports(a), Accept: m.acceptor(a)})
	}
	var err error
	if e.groups, err = m.binder.ListenAll(ctx, places); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.down {
			err = ErrShutdown // in place of the errors of cores that stop
		}
		return nil, err
	}
	for i, a := range addrs {
		a.AddrPort = e.groups[i].Addr()
		e.addrs = append(e.addrs, a)
	}
	return e, nil
}

// setBound makes the addresses of e those that peers are told, with the present
// nonce. The lock is held.
func (m *Messenger) setBound(e *endpoints) {
	m.identity.settle(e.addrs)
	m.findLocal()
}
