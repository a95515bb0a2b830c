package handshake

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Peer is the other side of a handshake, as far as it is known. msgr1 has no revision,
// features or compression.
type Peer struct {
	// EntityType is the type that the peer claims. An acceptor must expect unknown values.
	EntityType wire.EntityType
	// Revision is the framing that both sides use.
	Revision frame.Revision
	// Features are the banner features that both sides support.
	Features uint64
	// SeenAs is the own address as an acceptor sees it: source IP and ephemeral port. Only
	// set on the connector.
	SeenAs wire.Addr
	// Target is the address that a connector meant to reach. Only set on the acceptor.
	Target wire.Addr
	// Auth is the outcome of authentication. msgr2 has wiped its secrets.
	Auth *auth.Result
	// Mode protects the frames from AUTH_SIGNATURE on.
	Mode auth.Mode
	// Compression is the method that was agreed; [wire.CompressionNone] without negotiation.
	Compression wire.CompressionMethod
}

// String describes the peer for logs.
func (p *Peer) String() string {
	return fmt.Sprintf("%v %v %v", p.EntityType, p.Revision, p.Mode)
}

// CheckResult refuses the outcome of a method that proves identity if there is no key.
func CheckResult(res *auth.Result, m auth.Method) error {
	if res == nil || m != auth.None && len(res.SessionKey) == 0 {
		return fmt.Errorf("%w: method %v", ErrNoSessionKey, m)
	}
	return nil
}

// Wipe tells an exchange that it is not needed any more.
func Wipe(exchange any) {
	if w, ok := exchange.(auth.Wiper); ok {
		w.Wipe()
	}
}

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
