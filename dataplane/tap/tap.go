package tap

import (
	"net/netip"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Tracer gives each socket its tap. Implementations are called by many goroutines at
// once, and must not call the messenger.
type Tracer interface {
	// Trace is called once for each TCP connection, before its first byte. nil: the
	// socket is not watched.
	Trace(s Socket) Tap
}

// Socket is one TCP connection.
type Socket struct {
	Accepted bool // we accepted it, else we dialled
	Local    netip.AddrPort
	Peer     netip.AddrPort
}

// Tap is told of what passes on one socket. During the handshake it is called by one
// goroutine at a time, in the data phase by the core that owns the connection, which
// it must not block. What is sent is told before the kernel has it.
type Tap interface {
	// Banner: the features of a banner, a frame of neither direction.
	Banner(sent bool, supported, required uint64)
	// Frame: its slices are valid during the call.
	Frame(f Frame)
	// Ended: the socket is closed, and why. It can come from any goroutine, and again:
	// the first says why, and what comes behind it is to be passed over.
	Ended(why error)
}

// Frame is one frame that was decoded, or is about to be encoded.
type Frame struct {
	Sent bool // else received
	Tag  frame.Tag
	// Seg are the segments in clear: decrypted and decompressed.
	Seg [frame.MaxSegments][]byte
	// Compressed and Aborted are known of received frames alone.
	Compressed, Aborted bool
}
