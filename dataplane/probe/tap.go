package probe

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
	Trace(s TracedSocket) Tap
}

// TracedSocket is one TCP connection.
type TracedSocket struct {
	Accepted bool // we accepted it, else we dialled
	Local    netip.AddrPort
	Peer     netip.AddrPort
}

// Tap gets the frames of one socket. During the handshake it is called by one goroutine
// at a time, in the data phase by the core that owns the connection, which it must not
// block. It gets a sent frame before the kernel does.
type Tap interface {
	// Banner: the features of a banner, a frame of neither direction.
	Banner(sent bool, supported, required uint64)
	// Frame: its slices are valid during the call.
	Frame(f Frame)
	// Part is Banner and Frame of msgr1; its slices are valid during the call.
	Part(p Part)
	// Ended: the socket is closed, and why. It can come from any goroutine, and again:
	// the first call has the cause, and later calls of any method are to be ignored.
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

// PartKind is the kind of a Part.
type PartKind uint8

// The kinds, in the order in which they come.
const (
	PartAcceptorHello  PartKind = iota + 1 // banner and addresses
	PartConnectorHello                     // the same
	PartConnect                            // a connect message
	PartReply                              // to a connect message
	PartSeq                                // what a side has received, behind a reply with SEQ
	PartOpen                               // what has a frame1.Tag
)

// Part is a message of the handshake or a frame of msgr1.
type Part struct {
	Sent bool // else received
	Kind PartKind
	// Bytes are all of it, without an authorizer, and with PartOpen what follows the tag of an
	// ACK or a keepalive.
	Bytes []byte
	// Tag is set with PartOpen, and Form, Header and Seg, which are front, middle and data,
	// if that is a message.
	Tag    frame1.Tag
	Form   frame1.Form
	Header *frame1.Header
	Seg    [3][]byte
}
