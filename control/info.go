package control

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Info is what was negotiated on the last TCP connection of a Conn.
type Info struct {
	PeerType    wire.EntityType
	PeerAddrs   wire.AddrVec
	PeerNumber  int64           // gid
	PeerEntity  wire.EntityName // as it authenticated itself to us; zero if we connected
	Features    wire.Features   // what both sides support
	Protocol    string          // msgr2.0 or msgr2.1
	Auth        auth.Method
	Mode        auth.Mode
	Compression string // none, snappy, zlib, zstd or lz4
	Lossy       bool
	Accepted    bool // by us, else dialled by us
	Handshake   time.Duration
	Local, Peer string // socket addresses
	Placement   Placement
}

// Info is what was negotiated last; the zero Info before the first handshake
// is complete.
func (c *Conn) Info() Info {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	info := c.info
	if info.Protocol != "" {
		info.Placement = c.placement()
	}
	return info
}

// Auth is what authentication found on the last TCP connection, with its
// secrets wiped; nil before the first. It must not be changed. Any goroutine
// may call it, a core's too.
func (c *Conn) Auth() *auth.Result { return c.auth.Load() }

// note keeps what was negotiated. The lock is held.
func (c *Conn) note(link *dataplane.Link, peer *handshake.Peer, accepted bool, took time.Duration) {
	c.auth.Store(peer.Auth)
	c.info = Info{
		PeerType: c.peerType, PeerAddrs: c.peerAddrs, PeerNumber: c.peerNumber, PeerEntity: c.peerEntity,
		Features: c.features, Protocol: peer.Revision.String(), Auth: peer.Auth.Method, Mode: peer.Mode,
		Compression: peer.Compression.String(), Lossy: c.policy.Lossy, Accepted: accepted, Handshake: took,
		Local: link.LocalAddr().String(), Peer: link.PeerAddr().String(),
	}
}
