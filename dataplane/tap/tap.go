package tap

import (
	"net/netip"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
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
	// Part is Banner and Frame of msgr1; what it points to is valid during the call.
	Part(p Part)
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

// Kind says what a Part is.
type Kind uint8

// The kinds, in the order in which they come.
const (
	AcceptorHello  Kind = iota + 1 // banner and addresses
	ConnectorHello                 // the same
	Connect                        // a connect message
	Reply                          // to a connect message
	Seq                            // what a side has received, behind a reply with SEQ
	Open                           // what has a frame1.Tag
)

// Part is what msgr1 has in place of a frame.
type Part struct {
	Sent bool // else received
	Kind Kind
	// Bytes are all of it, without an authorizer, and with Open what follows the tag of an
	// ACK or a keepalive.
	Bytes []byte
	// Tag is set with Open, and Form, Header and Seg, which are front, middle and data,
	// if that is a message.
	Tag    frame1.Tag
	Form   frame1.Form
	Header *frame1.Header
	Seg    [3][]byte
}
