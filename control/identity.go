package control

import (
	"net/netip"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// identity is what peers are told of us: our addresses, and where they come from.
// It is guarded by the messenger's lock.
type identity struct {
	addrs  wire.AddrVec // bound or learned; replaced as a whole, as others may still send the old ones
	bound  bool
	places []netip.Addr // what addrs are bound to, before any was learned; nil after a hand-over
	nonce  uint32

	shown atomic.Pointer[wire.AddrVec] // addrs, for who must not wait for the lock
}

// setAddrs changes what peers are told.
func (id *identity) setAddrs(addrs wire.AddrVec) {
	id.addrs = addrs
	id.shown.Store(&addrs)
}

// settle makes the addresses that we listen on those that peers are told, with the
// present nonce. What was learned before stays.
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
