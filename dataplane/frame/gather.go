package frame

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Gathers tells whether a frame may be sent in pieces: the bytes of AppendMessage,
// then the segments from their own memory, then the bytes of AppendEnd. It is true in plain
// crc mode only: encryption and compression rewrite the segments, by AppendFrame.
func (e *Encoder) Gathers() bool { return !e.layout.secure && e.comp == nil }

// AppendMessage appends the bytes before segment 1 of a message with this header: preamble, segment
// 0 and, in revision 1, its crc. Segments 1, 2 and 3, of these lengths in bytes, must follow on the
// wire, then AppendEnd or AppendClose.
//
// It panics if Gathers is false, which would put plain text on an encrypted
// connection, and for lengths for which FrameSize is -1.
func (e *Encoder) AppendMessage(dst []byte, h *MessageHeader, front, middle, data int) []byte {
	l := &e.head
	if l.Tag != TagMessage || l.Flags != 0 || l.Len[0] != MessageHeaderSize || int(l.Len[1]) != front || int(l.Len[2]) != middle || int(l.Len[3]) != data {
		e.gathered(front, middle, data)
	}
	const size = PreambleSize + MessageHeaderSize
	at := len(dst)
	dst = slices.Grow(dst, size+crcSize)[:at+size]
	b := (*[size]byte)(dst[at:])
	*(*[PreambleSize]byte)(b[:]) = e.last
	h.put((*[MessageHeaderSize]byte)(b[PreambleSize:]))
	return e.appendSum0(dst)
}

// AppendEnd appends the bytes after the last segment of the frame that was opened last:
// the epilogue, or nothing for a single segment in revision 1. sums are the crcs of segments
// 1, 2 and 3 (SegmentCRC from SegmentCRCInit on). It ignores the crcs of empty segments, and
// all of them if SumsSegments is false. With a wrong crc the receiver takes the frame for
// damaged.
func (e *Encoder) AppendEnd(dst []byte, sums *[3]uint32) []byte {
	h := &e.head
	if h.Num == 1 && e.layout.rev != Rev0 {
		return dst
	}
	dst = append(dst, lateByte(e.layout.rev))
	if e.layout.rev == Rev0 {
		dst = binary.LittleEndian.AppendUint32(dst, e.sum0)
	}
	at := len(dst)
	dst = slices.Grow(dst, 3*crcSize)[:at+3*crcSize]
	b := (*[3 * crcSize]byte)(dst[at:])
	binary.LittleEndian.PutUint32(b[0:], e.sum(1, sums[0]))
	binary.LittleEndian.PutUint32(b[4:], e.sum(2, sums[1]))
	binary.LittleEndian.PutUint32(b[8:], e.sum(3, sums[2]))
	return dst
}

// sum is the crc to be sent for segment i, whose crc is sum if it is not empty.
func (e *Encoder) sum(i int, sum uint32) uint32 {
	if i >= e.head.Num || e.zeroCRC {
		return 0
	}
	if e.head.Len[i] == 0 {
		return SegmentCRCInit
	}
	return sum
}

// AppendClose is AppendEnd with the crcs of these segments. segs[0] is ignored.
func (e *Encoder) AppendClose(dst []byte, segs [4][]byte) []byte {
	var sums [3]uint32
	for i, s := range segs[1:] {
		if len(s) > 0 && !e.zeroCRC {
			sums[i] = SegmentCRC(SegmentCRCInit, s)
		}
	}
	return e.AppendEnd(dst, &sums)
}

// gathered begins a message. It panics like AppendMessage.
func (e *Encoder) gathered(front, middle, data int) {
	if !e.Gathers() {
		panic("frame: gathered send of an encrypted or compressed frame")
	}
	var h Header
	err := h.fill(TagMessage, &[MaxSegments]int{MessageHeaderSize, front, middle, data})
	if _, ok := e.layout.frameSize(&h); err != nil || !ok {
		panic(fmt.Sprintf("frame: gathered send of %d, %d and %d bytes: %v", front, middle, data, cmp.Or(err, ErrTooLarge)))
	}
	e.begin(&h)
}

// begin makes h the preamble of the frame that begins.
func (e *Encoder) begin(h *Header) {
	if *h != e.head {
		putPreamble(&e.last, h)
		e.head = *h
	}
}

// appendSum0 takes the crc of segment 0, at the end of dst, and appends it in revision 1.
func (e *Encoder) appendSum0(dst []byte) []byte {
	n := int(e.head.Len[0])
	e.sum0 = 0
	if !e.zeroCRC {
		e.sum0 = SegmentCRC(SegmentCRCInit, dst[len(dst)-n:])
	}
	if n == 0 || e.layout.rev == Rev0 {
		return dst
	}
	return binary.LittleEndian.AppendUint32(dst, e.sum0)
}

// appendClear appends the frame that begins, in one piece, in crc mode. The crcs are taken
// from the copies, which are in the cache.
func (e *Encoder) appendClear(dst []byte, segs *[MaxSegments][]byte) []byte {
	dst = append(dst, e.last[:]...)
	dst = e.appendSum0(append(dst, segs[0]...))
	var sums [3]uint32
	for i, s := range segs[1:] {
		sum := SegmentCRCInit
		for len(s) > 0 {
			const step = 16 << 10 // what was just copied is still in the cache
			n := min(step, len(s))
			if dst = append(dst, s[:n]...); !e.zeroCRC {
				sum = SegmentCRC(sum, dst[len(dst)-n:])
			}
			s = s[n:]
		}
		sums[i] = sum
	}
	return e.AppendEnd(dst, &sums)
}
