package handshake

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// ErrAddress means that the peer's idea of an address contradicts the own one.
var ErrAddress = errors.New("address does not match")

// LearnClassic returns the own address after a HELLO that shows it as seen, by the rules
// of the threaded messenger (protocol section 7.2.1). Only an unknown IP is filled in; a
// known one stays whatever the peer says. Port and nonce are never learned. The type of
// a process that is not bound, that is without a port, becomes [wire.AddrAny].
func LearnClassic(own, seen wire.Addr) wire.Addr {
	if !own.IsBlank() || seen.IsBlank() {
		return own
	}
	return learn(own, seen)
}

// LearnSharded does the same by the rules of the sharded messenger, which also verify: a
// legacy address is refused, and an IP that is known already must be the one that the
// peer sees. known says whether the own address was learned or configured before. An
// error wraps [ErrAddress] and is a fault.
func LearnSharded(own, seen wire.Addr, known bool) (wire.Addr, error) {
	if seen.Type == wire.AddrLegacy {
		return own, fmt.Errorf("%w: peer sees us as %v", ErrAddress, seen)
	}
	seen.Type = wire.AddrMsgr2
	bound := own.AddrPort.Port() != 0
	if (known || bound) && own.Type != wire.AddrAny && own.Type != seen.Type {
		return own, fmt.Errorf("%w: we are %v, peer sees %v", ErrAddress, own, seen)
	}
	if ip := own.AddrPort.Addr(); ip.IsValid() && ip.Is4() != seen.AddrPort.Addr().Is4() {
		return own, fmt.Errorf("%w: we are %v, peer sees the other family in %v", ErrAddress, own, seen)
	}
	switch {
	case !own.IsBlank() && !own.SameHost(seen):
		return own, fmt.Errorf("%w: we are %v, peer sees %v", ErrAddress, own, seen)
	case !own.IsBlank() || seen.IsBlank():
		return own, nil
	}
	return learn(own, seen), nil
}

// learn puts the IP of seen into own.
func learn(own, seen wire.Addr) wire.Addr {
	port := own.AddrPort.Port()
	out := wire.Addr{Type: own.Type, Nonce: own.Nonce, AddrPort: seen.AddrPort}.WithPort(port)
	if port == 0 {
		out.Type = wire.AddrAny
	}
	return out
}

// CheckTarget verifies, by the rules of the sharded messenger (protocol section 7.3,
// step 4), that the address that a connector meant to reach is the own one: with a known
// IP, every field must match. The threaded messenger does not look at it. An error wraps
// [ErrAddress] and is a fault.
func CheckTarget(own, target wire.Addr) error {
	if own.IsBlank() || own.Equal(target) {
		return nil
	}
	return fmt.Errorf("%w: peer wants %v, we are %v", ErrAddress, target, own)
}
