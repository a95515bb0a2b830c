package sessions

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// identity are our addresses as peers get them, and their origin. The messenger's lock guards
// it.
type identity struct {
	addrs  wire.AddrVec // bound or learned; replaced as a whole, as others may still send the old ones
	bound  bool
	places []netip.Addr // the bound IPs of addrs, before any was learned; nil after a hand-over
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
		id.places = append(id.places, a.AddrPort.Addr())
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
		if len(id.places) != len(id.addrs) { // by a hand-over
			places = append(places[:i:i], a.AddrPort.Addr())
		}
	}
	for i, ip := range places {
		at = append(at, wire.Addr{Type: id.addrs[i].Type, AddrPort: netip.AddrPortFrom(ip, 0)})
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
		wildcard := len(id.places) == len(id.addrs) && id.places[i].IsUnspecified()
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
