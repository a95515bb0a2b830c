package handshake

import "github.com/ringmsgr/ringmsgr/control/wire"

// LearnClassic returns the own address after a HELLO that shows it as seen, by the rules
// of the threaded messenger (Ceph's ProtocolV2.cc). Only an unknown IP is filled in; a
// known one stays whatever the peer says. Port and nonce are never learned. The type of
// a process that is not bound, that is without a port, becomes [wire.AddrAny].
func LearnClassic(own, seen wire.Addr) wire.Addr {
	if !own.IsBlank() || seen.IsBlank() {
		return own
	}
	port := own.AddrPort.Port()
	out := wire.Addr{Type: own.Type, Nonce: own.Nonce, AddrPort: seen.AddrPort}.WithPort(port)
	if port == 0 {
		out.Type = wire.AddrAny
	}
	return out
}
