package frame

import "slices"

// Gathers tells whether a frame may be sent in pieces, with AppendOpen and
// AppendClose around segments that stay where they are: only in plain crc mode.
// Encryption and compression rewrite the segments; AppendFrame does that.
func (e *Encoder) Gathers() bool { return !e.layout.secure && e.comp == nil }

// AppendOpen appends what stands before segment 1: preamble, segment 0 and, in
// revision 1, its crc. lens are the lengths of all segments; lens[0] is taken
// from seg0. The segments 1, 2 and 3 must follow on the wire, then AppendClose.
//
// It panics if Gathers is false, which would put plain text on an encrypted
// connection, and for lengths for which FrameSize is -1.
func (e *Encoder) AppendOpen(dst []byte, tag Tag, seg0 []byte, lens [4]int) []byte {
	var h Header
	e.gathered(&h, tag, len(seg0), &lens)
	at := len(dst)
	dst = slices.Grow(dst, PreambleSize+len(seg0)+crcSize)[:at+PreambleSize]
	e.putPreamble((*[PreambleSize]byte)(dst[at:]), &h)
	at = len(dst)
	dst = append(dst, seg0...)
	if len(seg0) > 0 && e.layout.rev != Rev0 {
		dst = appendCRC(dst, e.segmentCRC(dst[at:]))
	}
	return dst
}

// AppendClose appends what stands behind the last segment: the epilogue, with
// the crcs of the segments, or nothing for a single segment in revision 1.
// segs[0] is ignored in favour of seg0. It panics like AppendOpen.
func (e *Encoder) AppendClose(dst []byte, seg0 []byte, segs [4][]byte) []byte {
	return e.AppendCloseKnown(dst, seg0, segs, &CRCs{})
}

// AppendCloseKnown is AppendClose where crcs of segments are known already: they
// are not computed again, where they are sent at all. A wrong one makes a frame
// that the receiver takes for damaged.
func (e *Encoder) AppendCloseKnown(dst []byte, seg0 []byte, segs [4][]byte, known *CRCs) []byte {
	segs[0] = seg0
	var lens [4]int
	var crcs [4]uint32
	for i, s := range segs {
		lens[i] = len(s)
		switch {
		case i < e.layout.firstInEpilogue():
		case known.Known[i] && !e.zeroCRC:
			crcs[i] = known.Of[i]
		default:
			crcs[i] = e.segmentCRC(s)
		}
	}
	var h Header
	e.gathered(&h, 0, lens[0], &lens)
	_, n := e.layout.split(&h)
	at := len(dst)
	dst = slices.Grow(dst, int(n))[:at+int(n)]
	e.putEpilogue(dst[at:], &h, &crcs)
	return dst
}

func (e *Encoder) gathered(h *Header, tag Tag, len0 int, lens *[4]int) {
	if !e.Gathers() {
		panic("frame: gathered send of an encrypted or compressed frame")
	}
	lens[0] = len0
	if err := h.fill(tag, lens[:]); err != nil {
		panic("frame: gathered send: " + err.Error())
	}
	if _, ok := e.layout.frameSize(h); !ok {
		panic("frame: gathered send: " + ErrTooLarge.Error())
	}
}

func appendCRC(dst []byte, crc uint32) []byte {
	return append(dst, byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))
}
