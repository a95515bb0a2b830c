package frame

import "fmt"

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
