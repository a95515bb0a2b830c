package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Bind listens on one or more addresses, each on every core; see control.Messenger.Bind.
func (m *Manager) Bind(addrs ...wire.Addr) (wire.AddrVec, error) {
	done, err := m.beginBinding(context.Background())
	if err != nil {
		return nil, err
	}
	defer done()
	m.lock()
	again, taken := m.bound, m.listeners.Taken()
	m.unlock()
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
		return binding.Ports{From: m.cfg.Ports}
	})
	if err != nil {
		return nil, err
	}
	defer close(e.settled)
	m.steering.Begin(taken, m.Cores(), steeringGroups(e.groups, anyCore))
	now := m.cfg.Clock.Now()
	m.lock()
	defer m.unlock()
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
	m.setBoundLocked(e)
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
func (m *Manager) beginBinding(ctx context.Context) (done func(), err error) {
	unlock, err := m.resizing.Lock(ctx)
	if err != nil {
		return nil, err
	}
	m.lock()
	defer m.unlock()
	if err := m.mayResizeLocked(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// newBinder makes the Binder, which opens our listeners.
func (m *Manager) newBinder() *binding.Binder {
	return &binding.Binder{
		Cores: m.running, Retries: m.cfg.Retries,
		Pause: func(ctx context.Context) error {
			over, stop := m.withTimeout(ctx, m.cfg.RetryDelay)
			defer stop()
			select {
			case <-over.Done():
			case <-m.ctx.Done():
			}
			return cmp.Or(context.Cause(ctx), context.Cause(m.ctx))
		},
	}
}

// endpoints are the listeners of all addresses.
type endpoints struct {
	addrs   wire.AddrVec    // without their nonce
	groups  []binding.Group // of each address
	settled chan struct{}   // closed once the addresses are ours, or will not be
}

func (e *endpoints) close() {
	for _, g := range e.groups {
		binding.Close(g)
	}
}

// listenAll listens on all addresses, or on none. Handshakes of connections that come wait
// until the caller closes settled.
func (m *Manager) listenAll(ctx context.Context, addrs []wire.Addr, ports func(wire.Addr) binding.Ports) (*endpoints, error) {
	e := &endpoints{settled: make(chan struct{})}
	var places []binding.Place
	for _, a := range addrs {
		if !mayBeServed(a) {
			return nil, fmt.Errorf("%w: cannot listen on %v: want a v2 or a v1 address", ErrConfig, a)
		}
		if err := protocolAt(a).allowed(&m.cfg); err != nil {
			return nil, err
		}
		if !a.AddrPort.IsValid() {
			return nil, fmt.Errorf("%w: cannot listen on %v: no address", ErrConfig, a)
		}
		places = append(places, binding.Place{Name: a.String(), IP: a.AddrPort.Addr(), Ports: ports(a), Accept: m.acceptor(a, e.settled)})
	}
	var err error
	if e.groups, err = m.binder.ListenAll(ctx, places); err != nil {
		close(e.settled)
		m.lock()
		defer m.unlock()
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

// setBoundLocked makes the addresses of e our addresses, with the present nonce.
func (m *Manager) setBoundLocked(e *endpoints) {
	m.identity.settle(e.addrs)
	m.findLocalLocked()
}

// Rebind gives us other ports and another nonce; see control.Messenger.Rebind.
func (m *Manager) Rebind(ctx context.Context, avoid ...uint16) (wire.AddrVec, error) {
	done, err := m.beginBinding(ctx)
	if err != nil {
		return nil, fmt.Errorf("rebind: %w", err)
	}
	defer done()
	m.lock()
	at, ports := m.identity.elsewhere(m.cfg.Ports, avoid)
	taken := m.listeners.Taken()
	m.unlock()
	if at == nil {
		return nil, fmt.Errorf("rebind: %w", ErrNotBound)
	}
	e, err := m.listenAll(ctx, at, func(wire.Addr) binding.Ports { return ports })
	if err != nil {
		return nil, fmt.Errorf("rebind: %w", err)
	}
	defer close(e.settled)
	// The old address is not steered from here on, until it closes.
	m.steering.Follow(taken, m.Cores(), steeringGroups(e.groups, anyCore))
	old, addrs, err := m.swap(e, taken, uint32(m.random.next()))
	if err != nil {
		m.steering.Close(taken + 1) // no listener is left
		e.close()
		return nil, fmt.Errorf("rebind: %w", err)
	}
	binding.Close(old)
	return addrs, nil
}

// swap is the moment at which the new address takes the place of the old one. It
// returns the listeners of that, to be closed. nonce is a random one.
func (m *Manager) swap(e *endpoints, taken uint64, nonce uint32) (old []*loop.Listener, addrs wire.AddrVec, err error) {
	m.lock()
	defer m.unlock()
	if m.down {
		return nil, nil, ErrShutdown
	}
	old, ok := m.listeners.Swap(e.groups, taken)
	if !ok {
		return nil, nil, fmt.Errorf("%w any more: Unbind came between", ErrNotBound)
	}
	for _, c := range m.sortedLocked() {
		c.markedDown.Store(true)
		c.user.Cease()
		c.s.closeLocked(false, ErrRebound)
	}
	m.identity.renew(nonce)
	m.setBoundLocked(e)
	addrs = slices.Clone(m.addrs)
	m.mu.LaterLocked(func() { m.cfg.Logger.Info("bound anew", "addrs", addrs) })
	return old, slices.Clone(addrs), nil
}

// Unbind stops accepting: the listeners of all cores are closed. Connections and their
// sessions go on, and Addrs does not change. Rebind listens again. Not for a dispatcher on a
// core.
func (m *Manager) Unbind() error {
	listeners, taken := m.listeners.Take()
	m.steering.Close(taken)
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// identity are our addresses as peers get them, and their origin. The messenger's lock guards
// it.
type identity struct {
	addrs  wire.AddrVec // bound or learned; replaced as a whole, as others may still send the old ones
	bound  bool
	places []netip.AddrPort // the bound ones of addrs, before any IP was learned; nil after a hand-over without listeners
	nonce  uint32

	shown atomic.Pointer[wire.AddrVec] // addrs, for readers that must not wait for the lock
}

// setAddrs changes our addresses.
func (id *identity) setAddrs(addrs wire.AddrVec) {
	id.addrs = addrs
	id.shown.Store(&addrs)
}

// settle makes the addresses that we listen on our addresses, with the present nonce. Learned
// IPs stay.
func (id *identity) settle(listening wire.AddrVec) {
	id.bound, id.places = true, nil
	addrs := make(wire.AddrVec, len(listening))
	for i, a := range listening {
		id.places = append(id.places, a.AddrPort)
		if a.IsBlank() && i < len(id.addrs) {
			a = withIP(a, id.addrs[i])
		}
		addrs[i] = a.WithNonce(id.nonce)
	}
	id.setAddrs(addrs)
}

// elsewhere returns where to listen instead of the present addresses, with the
// ports that may be tried: neither ours nor any of avoid. It is nil if we are
// not bound.
func (id *identity) elsewhere(from bpf.PortRange, avoid []uint16) (at []wire.Addr, ports binding.Ports) {
	if !id.bound {
		return nil, ports
	}
	ports = binding.Ports{From: from, Avoid: make(map[uint16]bool)}
	for _, p := range avoid {
		ports.Avoid[p] = true
	}
	places := id.places
	for i, a := range id.addrs {
		ports.Avoid[a.AddrPort.Port()] = true
		if len(id.places) != len(id.addrs) { // by a hand-over without listeners
			places = append(places[:i:i], a.AddrPort)
		}
	}
	for i, place := range places {
		at = append(at, wire.Addr{Type: id.addrs[i].Type, AddrPort: netip.AddrPortFrom(place.Addr(), 0)})
	}
	return at, ports
}

// renew takes another nonce, near to n.
func (id *identity) renew(n uint32) {
	if n == id.nonce {
		n++
	}
	id.nonce = n
}

// withIP is a with the IP of b if that is of the same family.
func withIP(a, b wire.Addr) wire.Addr {
	if ip := b.AddrPort.Addr(); !b.IsBlank() && ip.Is4() == a.AddrPort.Addr().Is4() {
		a.AddrPort = netip.AddrPortFrom(ip, a.AddrPort.Port())
	}
	return a
}

// Our own addresses, and our number. A bound IP comes from the configuration and never
// changes. The IP of an address that is bound without one (a wildcard) is learned once, from
// our end of the first socket, and then peers get this IP. The kernel knows it; an IP that a
// peer names counts for that peer only.

// learn fills in the IP of the addresses that have none: that of our end of a
// socket, or the one under which the peer sees us if the kernel does not know.
// An unbound messenger has no address of its own, and takes that under which
// its first peer sees it, as a translation between the two may require. Of an
// address only the IP is learned, never the port or the nonce (Ceph's ProtocolV2.cc,
// as the classic implementation does it). It says whether an address that we had
// is another one now.
func (id *identity) learn(local netip.AddrPort, seen wire.Addr) (changed bool) {
	if len(id.addrs) == 0 {
		if !seen.IsBlank() {
			id.setAddrs(wire.AddrVec{seen.WithType(wire.AddrAny).WithPort(0).WithNonce(id.nonce)})
		}
		return false
	}
	if ip := local.Addr().Unmap().WithZone(""); ip.IsValid() && !ip.IsUnspecified() {
		seen.AddrPort = netip.AddrPortFrom(ip, local.Port())
	}
	for i, a := range id.addrs {
		if b := withIP(a, seen); a.IsBlank() && b != a {
			addrs := slices.Clone(id.addrs)
			addrs[i] = b
			id.setAddrs(addrs)
			changed = true
		}
	}
	return changed
}

// ours says whether an address that a peer wants to reach is ours: one of our addresses, or
// our end of its socket. For a wildcard it may be any address with our port and a nonce that
// only we can have, as there may be a translation between us. Nonce 0 stands for any process
// at our end of the socket, if that is an address of ours: only real monitors have it, and a
// peer that dials a monitor checks its type. A peer that names another nonce means a process
// that is gone.
func (id *identity) ours(target wire.Addr, local netip.AddrPort) bool {
	if id.addrs.Contains(target) {
		return true
	}
	if target.Nonce == 0 && target.AddrPort == netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port()) && id.bound {
		target.Nonce = id.nonce
	}
	for i, a := range id.addrs {
		if target.Type != a.Type || target.Nonce != a.Nonce || target.IsBlank() || target.AddrPort.Port() != a.AddrPort.Port() {
			continue
		}
		same := local.Port() == a.AddrPort.Port() && local.Addr().Unmap().WithZone("") == target.AddrPort.Addr()
		wildcard := len(id.places) == len(id.addrs) && id.places[i].Addr().IsUnspecified()
		if same || wildcard && a.Nonce != 0 {
			return true
		}
	}
	return false
}

// learnLocked takes over an IP if we need one: local is our end of a socket, seen the
// address under which its peer sees us.
func (m *Manager) learnLocked(local netip.AddrPort, seen wire.Addr) {
	if m.identity.learn(local, seen) {
		m.findLocalLocked()
	}
}

// SetNumber sets the number of a client that a monitor has given it in messages, as in msgr1;
// the handshake of msgr2 brings it by itself. A known number stays. Messages of msgr1 name it,
// on connections that open from now on.
func (m *Manager) SetNumber(globalID uint64) {
	m.lock()
	defer m.unlock()
	m.numberedLocked(globalID)
}

// numberedLocked takes over the number that a monitor has given us.
func (m *Manager) numberedLocked(globalID uint64) {
	if m.cfg.Name.Type == wire.Client && m.number < 0 && globalID != 0 {
		m.number = int64(globalID)
	}
}
