package control

import (
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// What our own addresses are, and our number. A bound IP is what the configuration says, and
// nothing changes it. Of an address that is bound without an IP (a wildcard) the
// IP is learned once, from the first socket, and peers are told that one. It is
// what the kernel says of our end of the socket: what a peer says about it holds
// for nobody but that peer.

// learn fills in the IP of the addresses that have none: that of our end of a
// socket, or the one under which the peer sees us if the kernel does not know.
// An unbound messenger has no address of its own, and takes that under which
// its first peer sees it, as a translation between the two may require. Of an
// address only the IP is learned, never the port or the nonce (msgr2.md 7.2.1,
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

// ours says whether an address that a peer wants to reach is one of ours: one
// that peers are told, or the one of our end of its socket, or, of a wildcard,
// any with our port and a nonce that only we can have: the peer's way may lead
// through a translation. Nonce 0 stands for whoever is there, at the end of the
// socket that is an address of ours: only real monitors have it, and who dials one
// of those finds out by its type. A peer that names another nonce means a process
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

// learn takes over an IP if we need one: local is our end of a socket, seen the
// address under which its peer sees us. The lock is held.
func (m *Messenger) learn(local netip.AddrPort, seen wire.Addr) {
	if m.identity.learn(local, seen) {
		m.findLocal()
	}
}

// SetNumber tells a client the number that a monitor has given it in messages, as they
// do where msgr1 is spoken; the handshake of msgr2 brings it by itself. A number that is
// known stays. Messages of msgr1 name it, on connections that open from now on.
func (m *Messenger) SetNumber(globalID uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbered(globalID)
}

// numbered takes over the number that a monitor has given us. The lock is held.
func (m *Messenger) numbered(globalID uint64) {
	if m.cfg.Name.Type == wire.Client && m.number < 0 && globalID != 0 {
		m.number = int64(globalID)
	}
}
