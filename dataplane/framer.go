package dataplane

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// framer is the protocol of a handler's socket: framer2 is msgr2, framer1 is msgr1. The
// rest of the handler knows neither. intake is the common part of both: it reads the stream, and
// asks the framer for the frames. Owner: the handler's core.
type framer interface {
	loop.Placer
	// frame is the received part of the frame under way, underWay is its tag.
	frame() *intake
	underWay() fmt.Stringer
	// next delivers the frames at the beginning of p that lie whole in it, and sets a target for
	// the first one that does not. It returns the bytes that it has not taken, and how many frames
	// came, with those before; goesOn says that there is a target.
	next(s *loop.Socket, p []byte, before int) (rest []byte, frames int, goesOn bool)
	// finish checks the frame under way, which is complete, and delivers it. b is the buffer that
	// holds head and rest.
	finish(s *loop.Socket, head, rest []byte, b *loop.Buffer)
	// underWayID is in the header of the message under way. In mode crc the header is checked
	// later: a posting of that id is not used before.
	underWayID() (seq, tid uint64, ok bool)
	// answers says that the peer answers keepalives, carriesAcks that messages carry acks.
	answers() bool
	carriesAcks() bool
	// appendMessage appends the next message to a write, or says that there is no room left.
	appendMessage(b *flush, m *Message) (fits bool, err error)
	// appendControl appends KEEPALIVE2, KEEPALIVE2_ACK or ACK, for which each write has room.
	appendControl(b *flush, tag frame.Tag, payload [8]byte) error
	// end lets go of the frame under way, and of the codec. s is nil if the socket is between
	// two cores.
	end(s *loop.Socket)
}

// Codec is a protocol with the encoder and the decoder of one socket: Msgr2 or Msgr1 makes
// it, and Handler.Open takes it over, with their keys.
type Codec struct {
	enc  *frame.Encoder
	dec  *frame.Decoder
	enc1 *frame1.Encoder
	dec1 *frame1.Decoder
}

// Msgr2 is the codec of a socket that speaks msgr2.
func Msgr2(enc *frame.Encoder, dec *frame.Decoder) Codec { return Codec{enc: enc, dec: dec} }

// Msgr1 is the codec of a socket that speaks msgr1.
func Msgr1(enc *frame1.Encoder, dec *frame1.Decoder) Codec { return Codec{enc1: enc, dec1: dec} }

// framer is that of a socket of h. That of msgr2 has its place in the handler.
func (c *Codec) framer(h *Handler, source Source) framer {
	if c.dec1 != nil {
		return &framer1{intake: intake{h: h}, enc: c.enc1, dec: c.dec1, source: source}
	}
	h.rx = framer2{intake: intake{h: h}, enc: c.enc, dec: c.dec}
	return &h.rx
}

// wipe overwrites the keys of a codec that is not used.
func (c *Codec) wipe() {
	if c.dec1 == nil {
		c.enc.Wipe()
		c.dec.Wipe()
	}
}
