package frame

import "fmt"

// Bounds of what a control frame can hold, in bytes (Ceph's frames_v2.h).
const (
	// controlSlack is the room of every control frame beyond its known fields, for
	// the fields that a newer peer adds. Authentication frames have no slack, as
	// their bound is far above their need.
	controlSlack = 1 << 10
	// MaxAuthFrame bounds the frames that carry the payload of an
	// authentication method. A frame of cephx has a few hundred bytes, and some
	// thousand with many tickets.
	MaxAuthFrame = 64 << 10
	// maxAddrs is the number of addresses for which an address vector has room.
	// Real processes have one to four.
	maxAddrs = 32
	// maxList is the number of elements for which a list of methods or modes
	// has room. There are fewer than ten of each.
	maxList = 64

	addrBytes    = 4 + 4 + 128 // the legacy form, which is the longest
	addrVecBytes = 1 + 4 + maxAddrs*addrBytes
	listBytes    = 4 + 4*maxList
)

// Bound is the room of a frame of one tag. The decoder compares every preamble
// with it, before it reads or allocates anything for the body.
type Bound struct {
	// Segments is the largest number of segments: 1 for control frames, 4 for
	// MESSAGE. 0 means that the protocol does not have the tag.
	Segments int
	// Min and Max are the least and the most bytes of segment 0, once it is
	// decompressed. They are equal for MESSAGE, whose header has a fixed size.
	// For control frames Min is 0: the decoder of the payload counts the fields.
	Min, Max uint32
}

// boundTable has a Bound for each value of a tag.
type boundTable [256]Bound

// tagBounds are the bounds of the protocol. Nothing changes them.
var tagBounds = boundTable{
	TagHello:                control(1 + addrBytes),
	TagAuthRequest:          {Segments: 1, Max: MaxAuthFrame},
	TagAuthBadMethod:        control(4 + 4 + 2*listBytes),
	TagAuthReplyMore:        {Segments: 1, Max: MaxAuthFrame},
	TagAuthRequestMore:      {Segments: 1, Max: MaxAuthFrame},
	TagAuthDone:             {Segments: 1, Max: MaxAuthFrame},
	TagAuthSignature:        control(32),
	TagClientIdent:          control(addrVecBytes + addrBytes + 6*8),
	TagServerIdent:          control(addrVecBytes + 6*8),
	TagIdentMissingFeatures: control(8),
	TagSessionReconnect:     control(addrVecBytes + 5*8),
	TagSessionReset:         control(1),
	TagSessionRetry:         control(8),
	TagSessionRetryGlobal:   control(8),
	TagSessionReconnectOK:   control(8),
	TagWait:                 control(0),
	TagMessage:              {Segments: MaxSegments, Min: MessageHeaderSize, Max: MessageHeaderSize},
	TagKeepalive2:           control(8),
	TagKeepalive2Ack:        control(8),
	TagAck:                  control(8),
	TagCompressionRequest:   control(1 + listBytes),
	TagCompressionDone:      control(1 + 4),
}

// control is the bound of a control frame whose known fields have up to n bytes.
func control(n uint32) Bound { return Bound{Segments: 1, Max: n + controlSlack} }

// Bound is the room of a frame with this tag, the zero Bound if the protocol does
// not have the tag.
func (t Tag) Bound() Bound { return tagBounds[t] }

// Packed is the most bytes of segment 0 on the wire if the frame is compressed. Bytes that do not
// compress grow a little: by a sixth and 32 bytes in the worst of the algorithms, and by the
// framing of the peer.
func (b Bound) Packed() uint64 { return uint64(b.Max) + uint64(b.Max)/4 + 256 }

// check refuses a preamble that says more than its tag can hold.
func (t *boundTable) check(h *Header) error {
	b := &t[h.Tag]
	if h.Num > b.Segments {
		return fmt.Errorf("%w: %v has %d, and holds %d", errSegmentCount, h.Tag, h.Num, b.Segments)
	}
	n, least, most := uint64(h.Len[0]), uint64(b.Min), uint64(b.Max)
	if h.Compressed() {
		least, most = min(least, 1), b.Packed()
	}
	if n > most {
		return fmt.Errorf("%w: segment 0 of %v has %d bytes, and holds %d", ErrTooLarge, h.Tag, n, most)
	}
	if n < least {
		return fmt.Errorf("%w: segment 0 of %v has %d bytes, and needs %d", ErrTruncated, h.Tag, n, least)
	}
	return nil
}

// Limits are the largest segments to accept, in bytes. They apply to the
// lengths in the preamble and, for compressed frames, to the decompressed
// lengths as well. They can only narrow the bound of a tag (Tag.Bound).
// The zero value accepts nothing but empty frames.
type Limits struct {
	Control uint32 // segment 0: the payload of a control frame, the header of a message
	Front   uint32 // segment 1
	Middle  uint32 // segment 2
	Data    uint32 // segment 3
}

// DefaultLimits are the limits for an authenticated peer: 16 MiB, and 64 MiB of
// data (the kernel client has the same).
func DefaultLimits() Limits {
	return Limits{Control: 16 << 20, Front: 16 << 20, Middle: 16 << 20, Data: 64 << 20}
}

// PreAuthLimits are the limits for a peer that has not proved anything yet:
// control frames up to 64 KiB, nothing else.
func PreAuthLimits() Limits { return Limits{Control: 64 << 10} }

func (l *Limits) of(segment int) uint32 {
	switch segment {
	case 0:
		return l.Control
	case 1:
		return l.Front
	case 2:
		return l.Middle
	}
	return l.Data
}

// check refuses a header with a segment above its limit.
func (l *Limits) check(h *Header) error {
	for i := range h.Num {
		if limit := l.of(i); h.Len[i] > limit {
			return fmt.Errorf("%w: segment %d of %v has %d bytes, limit %d", ErrTooLarge, i, h.Tag, h.Len[i], limit)
		}
	}
	return nil
}
