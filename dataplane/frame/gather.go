package frame

import (
	"fmt"
	"slices"
)

// Gathers tells whether a frame may be sent in pieces, with AppendOpen and
// AppendClose around segments that stay where they are: only in plain crc mode.
// Encryption and compression rewrite the segments; AppendFrame does that.
func (e *Encoder) Gathers() bool { return !e.layout.secure && e.comp == nil }

// CheckLengths tells whether a frame can carry segments of these lengths.
// Errors: ErrSegmentCount, ErrTooLarge.
func (e *Encoder) CheckLengths(lens ...int) error {
	h, err := makeHeader(0, lens)
	if err != nil {
		return err
	}
	if _, ok := e.layout.frameSize(&h); !ok {
		return fmt.Errorf("%w: whole frame", ErrTooLarge)
	}
	return nil
}

// AppendOpen appends what stands before segment 1: preamble, segment 0 and, in
// revision 1, its crc. lens are the lengths of all segments; lens[0] is taken
// from seg0. The segments 1, 2 and 3 must follow on the wire, then AppendClose.
//
// It panics if Gathers is false, which would put plain text on an encrypted
// connection, and for lengths that CheckLengths refuses.
func (e *Encoder) AppendOpen(dst []byte, tag Tag, seg0 []byte, lens [4]int) []byte {
	var h Header
	e.gathered(&h, tag, len(seg0), &lens)
	at := len(dst)
	dst = slices.Grow(dst, PreambleSize+len(seg0)+crcSize)[:at+PreambleSize]
	putPreamble((*[PreambleSize]byte)(dst[at:]), &h)
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
	segs[0] = seg0
	var lens [4]int
	var crcs [4]uint32
	for i, s := range segs {
		lens[i] = len(s)
		if i >= e.layout.firstInEpilogue() {
			crcs[i] = e.segmentCRC(s)
		}
	}
	return e.appendClose(dst, lens, crcs, false)
}

// AppendCloseCRC is AppendClose with crcs that are known already, computed by
// SegmentCRC from SegmentCRCInit on (an empty segment has SegmentCRCInit).
// crcs[0] is used in revision 0 only. With SetSegmentCRC(false) the crcs are
// ignored.
//
// aborted closes a frame that was opened and then given up: zeros were sent for
// what was left of the segments, crcs are those of the bytes that were really
// sent, and the receiver will drop the frame. A single segment of revision 1
// cannot be aborted (msgr2.md, section 5.7).
//
// It panics like AppendOpen.
func (e *Encoder) AppendCloseCRC(dst []byte, lens [4]int, crcs [4]uint32, aborted bool) []byte {
	if e.zeroCRC {
		crcs = [4]uint32{}
	}
	return e.appendClose(dst, lens, crcs, aborted)
}

func (e *Encoder) appendClose(dst []byte, lens [4]int, crcs [4]uint32, aborted bool) []byte {
	var h Header
	e.gathered(&h, 0, lens[0], &lens)
	_, n := e.layout.split(&h)
	at := len(dst)
	dst = slices.Grow(dst, int(n))[:at+int(n)]
	e.putEpilogue(dst[at:], &h, &crcs, aborted)
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
