package handshake1

import (
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Options are those of both roles.
type Options struct {
	// EntityType is the own type.
	EntityType wire.EntityType
	// Own is the own address; blank, or with a blank IP, if it is not known. A connector
	// learns the IP then.
	Own wire.Addr
	// NoDataCRC is that of frame1.Config.
	NoDataCRC bool
	// Limits of received messages; zero: frame.DefaultLimits.
	Limits frame.Limits
	// Probe sees and disturbs every read and write; nil costs nothing. When the
	// probe is asked after a write, the link has it, and nothing later was written.
	Probe *probe.Socket
	// Tap is told of every part of the handshake; nil costs nothing.
	Tap probe.Tap
}

// ConnectConfig configures [Connect].
type ConnectConfig struct {
	Options
	// Target is the address that was dialled, exactly as it is known, nonce included; a
	// nonce of 0 accepts any acceptor.
	Target wire.Addr
	// PeerType is the type of entity to reach. The acceptor does not say its own.
	PeerType wire.EntityType
	// Auth makes the authorizers. Required, unless the peer wants none (Authorizes).
	Auth auth.Client
}

// AcceptConfig configures [Accept].
type AcceptConfig struct {
	Options
	// PeerAddr is the socket address of the peer, as returned by accept.
	PeerAddr netip.AddrPort
	// Auth verifies authorizers. Required, unless no peer needs one.
	Auth auth.Server
	// Room is that of handshake2.AcceptConfig, and is asked for each authorizer.
	Room func(n int) error
}
