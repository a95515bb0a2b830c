package control

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Info is what was negotiated on the last TCP connection of a Conn, and how that receives.
type Info struct {
	PeerType    wire.EntityType
	PeerAddrs   wire.AddrVec
	PeerNumber  int64           // gid
	PeerEntity  wire.EntityName // as it authenticated itself to us; zero if we connected
	Features    wire.Features   // what both sides support
	Protocol    string          // msgr2.0, msgr2.1 or Msgr1
	Auth        auth.Method
	Mode        auth.Mode
	Compression string // none, snappy, zlib, zstd or lz4
	Lossy       bool
	Accepted    bool // by us, else dialled by us
	Handshake   time.Duration
	Local, Peer string // socket addresses
	Placement   Placement
	// Receive is how it receives now: dataplane.ReceiveBuffers, by the ring into buffers that
	// the connections of the core share, or dataplane.ReceiveReady, by readiness and direct
	// reads. ReceiveWhy is why. Both change with what comes, and are empty without a TCP
	// connection that carries messages: in the Accept and Connect events it may not yet.
	Receive    dataplane.ReceiveMode
	ReceiveWhy dataplane.Why
}

// Info is what was negotiated last; the zero Info before the first handshake
// is complete. It is there in the Accept and Connect events; Handshake is the
// time up to them. It takes no lock, and waits for no core. Any goroutine, a core's too.
func (c *Conn) Info() Info {
	now := c.shown.now.Load()
	if now.info == nil {
		return Info{}
	}
	info := *now.info
	info.Placement = now.place
	info.Placement.Core = c.h.Core().ID()
	info.Receive, info.ReceiveWhy = c.h.Receives()
	return info
}

// Auth is what authentication found on the last TCP connection, with its
// secrets wiped; nil before the first. It must not be changed. Any goroutine
// may call it, a core's too.
func (c *Conn) Auth() *auth.Result { return c.shown.auth.Load() }

// SetAuth says what authentication by messages has found, on a connection of msgr1 to a
// monitor of ours, where the handshake finds nothing. It holds until the next handshake
// of the connection. Any goroutine may call it, a core's too.
func (c *Conn) SetAuth(res *auth.Result) { c.shown.auth.Store(res) }
