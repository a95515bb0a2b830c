package frame

import (
	"fmt"
	"math"
	"slices"
)

// Encoder makes the frames of one direction of one connection. It starts in
// crc mode. It must not be used by two goroutines at a time, and the frames must
// go on the wire in the order in which they were made.
type Encoder struct {
	layout  layout
	dir     *direction // nil: never in secure mode
	zeroCRC bool

	// The preamble of the frame that was begun last, in clear: messages of one kind have the
	// same. Not set: head.Num is 0.
	last [PreambleSize]byte
	head Header
	sum0 uint32 // the crc of its segment 0

	comp    Compressor
	compMin int
	packed  []byte // scratch: compressed segments
}

// NewEncoder makes an encoder in crc mode for the revision that the banners
// agreed on. Anything but Rev0 is taken for Rev1.
func NewEncoder(rev Revision) *Encoder {
	return &Encoder{layout: layout{rev: known(rev)}}
}

func known(rev Revision) Revision {
	if rev == Rev0 {
		return Rev0
	}
	return Rev1
}

// Secure switches to AES-128-GCM for all later frames. The nonce is
// Keys.TxNonce. There is no way back, and no second call.
//
// Errors: ErrKeys.
func (e *Encoder) Secure(key [16]byte, nonce [12]byte) error {
	if e.dir == nil {
		e.dir = new(direction)
	}
	if err := e.dir.start(key, nonce, e.layout.rev); err != nil {
		return err
	}
	e.dir.chain = newChain(e.dir.block, e.dir.aead) // large segments are encrypted from where they lie
	e.layout.secure, e.head = true, Header{}
	return nil
}

// SetSegmentCRC switches the crcs of segments in crc mode; they are on from the
// start. Off, zeros are sent instead: that saves time, but a receiver that
// checks closes the connection, so both ends must be set alike (option
// ms_crc_data of later releases; 16.2.15 always checks). The crc of the preamble
// is not affected, nor is secure mode.
func (e *Encoder) SetSegmentCRC(on bool) { e.zeroCRC = !on }

// SumsSegments tells whether the crcs of segments are sent: in crc mode, unless that was
// switched off.
func (e *Encoder) SumsSegments() bool { return !e.layout.secure && !e.zeroCRC }

// Wipe forgets the key material. An encoder in secure mode makes no more
// frames after it: AppendFrame fails with ErrKeys.
func (e *Encoder) Wipe() {
	e.dir.wipe()
	clear(e.packed[:cap(e.packed)])
	e.packed = nil
}

// FrameSize is the size on the wire of a frame with segments of these lengths,
// in bytes, in the current mode. It is exact, except that a frame which gets
// compressed is smaller. It is -1 for lengths that no frame can carry.
func (e *Encoder) FrameSize(lens ...int) int {
	var h Header
	var all [MaxSegments]int
	if copy(all[:], lens) < len(lens) || h.fill(0, &all) != nil {
		return -1
	}
	n, ok := e.layout.frameSize(&h)
	if !ok {
		return -1
	}
	return n
}

// AppendFrame appends a whole frame with up to four segments to dst. Empty
// segments at the end are left out, others stay. The segments are not changed,
// and read once: copied into dst, or encrypted into dst. They must not overlap
// the spare capacity of dst. Nothing is allocated if dst has room for FrameSize
// more bytes and the segments are not in local variables: these escape.
//
// On an error dst is returned as it was.
//
// Errors: errSegmentCount for more than four segments, ErrTooLarge,
// errNonceExhausted, ErrKeys.
func (e *Encoder) AppendFrame(dst []byte, tag Tag, segs ...[]byte) ([]byte, error) {
	if len(segs) > MaxSegments {
		return dst, fmt.Errorf("%w: %d", errSegmentCount, len(segs))
	}
	var body [MaxSegments][]byte
	var lens [MaxSegments]int
	for i, s := range segs {
		body[i], lens[i] = s, len(s)
	}
	var h Header
	if err := h.fill(tag, &lens); err != nil {
		return dst, err
	}
	size, ok := e.layout.frameSize(&h)
	if !ok || size > math.MaxInt-len(dst) {
		return dst, fmt.Errorf("%w: frame of %v", ErrTooLarge, tag)
	}
	room := slices.Grow(dst, size)
	if e.comp != nil {
		size = e.compress(&h, &body, size)
	}
	if !e.layout.secure {
		e.begin(&h)
		return e.appendClear(room, &body), nil
	}
	out := room[:len(dst)+size]
	b := out[len(dst):]
	if err := e.dir.ready(e.layout.operations(&h)); err != nil {
		return dst, err
	}
	if e.layout.rev == Rev0 {
		putPreamble((*[PreambleSize]byte)(b), &h)
		e.sealBody(b, PreambleSize, body[:h.Num])
	} else {
		e.sealRev1(b, &h, &body)
	}
	return out, nil
}

// fill fills in an empty h: trailing empty segments are trimmed, one segment always stays.
func (h *Header) fill(tag Tag, lens *[MaxSegments]int) error {
	h.Tag, h.Num = tag, 1
	for i, n := range lens {
		if uint64(n) > math.MaxUint32 { // negative ones too
			return fmt.Errorf("%w: segment %d of %v has %d bytes", ErrTooLarge, i, tag, n)
		}
		if h.Len[i] = uint32(n); n > 0 {
			h.Num = i + 1
		}
	}
	return nil
}
