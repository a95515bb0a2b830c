package handshake2

import (
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Options are those of both roles. The zero value offers both revisions and
// no compression, and requires nothing.
type Options struct {
	// EntityType is the own type.
	EntityType wire.EntityType
	// Rev0Only leaves msgr2.1 out of the own banner, so that the peer talks msgr2.0.
	Rev0Only bool
	// Required are the banner features without which a peer is refused, such as
	// [wire.BannerRevision1].
	Required uint64
	// Modes restricts the connection modes to these; nil leaves the choice to the auth
	// client or server alone.
	Modes []auth.Mode
	// Compression takes part in the compression negotiation; nil does not announce the
	// feature.
	Compression *Compression
	// NoDataCRC sends zeros in place of the crcs of segments, from the first frame on, and
	// ignores those of the peer; mode secure has none. The peer must be set alike
	// (ms_crc_data = false of later releases): one that checks refuses the first frame.
	NoDataCRC bool
	// Probe sees and disturbs every read and write; nil costs nothing. When the
	// probe is asked after a write, the link has it, and nothing later was written.
	Probe *probe.Socket
	// Tap is told of both banners and of each frame; nil costs nothing.
	Tap probe.Tap
	// KeyLog gets the key that decrypts a recorded connection in mode secure: the payload
	// of its AUTH_DONE, which names it, and the secret of the connection. Both
	// are valid during the call. nil: nobody gets it.
	KeyLog func(authDone, secret []byte)
}

func (o *Options) banner() wire2.Banner {
	b := wire2.Banner{Required: o.Required}
	if !o.Rev0Only {
		b.Supported |= wire.BannerRevision1
	}
	if o.Compression != nil {
		b.Supported |= wire.BannerCompression
	}
	return b
}

// restrict returns the elements of modes that the options allow, in the same order.
func (o *Options) restrict(modes []auth.Mode) []auth.Mode {
	if o.Modes == nil {
		return modes
	}
	var out []auth.Mode
	for _, m := range modes {
		if slices.Contains(o.Modes, m) {
			out = append(out, m)
		}
	}
	return out
}

// ConnectConfig configures [Connect].
type ConnectConfig struct {
	Options
	// Target is the address that was dialled, exactly as it is known, nonce included.
	Target wire.Addr
	// PeerType is the type of entity to reach. Another one is a terminal error. 0 and
	// [wire.Any] accept every type.
	PeerType wire.EntityType
	// Auth authenticates this side. Required.
	Auth auth.Client
}

// AcceptConfig configures [Accept].
type AcceptConfig struct {
	Options
	// PeerAddr is the socket address of the peer, as returned by accept.
	PeerAddr netip.AddrPort
	// Auth authenticates the peer. Required.
	Auth auth.Server
	// Room is asked before the handshake keeps n more bytes of what it sends or
	// receives, until its end. An error of it, which should wrap [handshake.ErrNoRoom], fails the
	// handshake. nil: there is room.
	Room func(n int) error
}
