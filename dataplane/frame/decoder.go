package frame

import (
	"encoding/binary"
	"fmt"
	"math"
)

const maxInt = uint64(math.MaxInt)

// Decoder takes the frames of one direction of one connection apart. It starts
// in crc mode. It must not be used by two goroutines at a time, and must see the
// frames in the order of the wire.
type Decoder struct {
	layout  layout
	limits  Limits
	bounds  *boundTable // what each tag can hold
	dir     *direction  // nil: never in secure mode
	skipCRC bool
	comp    Compressor

	early *early // nil: not in secure mode of revision 0

	// The last preamble in clear that Open has accepted: messages of one kind
	// have the same, and need no second look. Not set: the tag is 0.
	last   [PreambleSize]byte
	opened Header
}

// NewDecoder makes a decoder in crc mode for the revision that the banners
// agreed on. Anything but Rev0 is taken for Rev1.
func NewDecoder(rev Revision, lim Limits) *Decoder {
	return &Decoder{layout: layout{rev: known(rev)}, limits: lim, bounds: &tagBounds}
}

// NewCodec makes the encoder and the decoder of one connection, in one piece of memory
// that lives as long as either of them.
func NewCodec(rev Revision, lim Limits) (*Encoder, *Decoder) {
	c := &struct {
		enc Encoder
		dec Decoder
	}{*NewEncoder(rev), *NewDecoder(rev, lim)}
	return &c.enc, &c.dec
}

// early is what secure mode of revision 0 needs: its frames are authenticated as a whole,
// so that their preambles are looked at before.
type early struct {
	peeked  [PreambleSize]byte // not trusted yet
	scratch []byte             // frame out of two buffers
}

// SetLimits replaces the limits, from the next Open on.
func (d *Decoder) SetLimits(lim Limits) { d.limits, d.opened = lim, Header{} }

// Secure switches to AES-128-GCM for all later frames. The nonce is
// Keys.RxNonce. There is no way back, and no second call.
//
// Errors: ErrKeys.
func (d *Decoder) Secure(key [16]byte, nonce [12]byte) error {
	if d.dir == nil {
		d.dir = new(direction)
	}
	if err := d.dir.start(key, nonce, d.layout.rev); err != nil {
		return err
	}
	d.layout.secure, d.opened = true, Header{}
	if d.layout.rev == Rev0 {
		d.early = new(early)
	}
	return nil
}

// IsSecure tells whether Secure was called, wiped since or not.
func (d *Decoder) IsSecure() bool { return d.layout.secure }

// Rev is the revision of the framing.
func (d *Decoder) Rev() Revision { return d.layout.rev }

// SetSegmentCRC switches the check of the crcs of segments in crc mode; it is on
// from the start. Off, their values are ignored, so any sender will do, but
// damage on the way goes unnoticed. The crc of the preamble is always checked.
func (d *Decoder) SetSegmentCRC(on bool) { d.skipCRC = !on }

// ChecksSegments tells whether the crcs of segments are checked: in crc mode,
// unless that was switched off.
func (d *Decoder) ChecksSegments() bool { return !d.layout.secure && !d.skipCRC }

// Wipe forgets the key material. A decoder in secure mode fails with ErrKeys
// after it.
func (d *Decoder) Wipe() {
	d.dir.wipe()
	if e := d.early; e != nil {
		clear(e.scratch[:cap(e.scratch)])
		*e = early{}
	}
}

// HeadSize is the number of bytes that Open needs in the current mode: 32, or
// 96 in secure mode of revision 1.
func (d *Decoder) HeadSize() int { return d.layout.headSize() }

// Open takes the first HeadSize bytes of a frame and checks, in this order, the
// authentication (secure mode of revision 1), the crc of the preamble, the number
// of segments, the tag, the flag for compression, the limits, and the bounds of
// the tag (Tag.Bound). In secure mode of
// revision 1 it decrypts head in place. In secure mode of revision 0 it leaves
// head as it is, and the header must not be trusted for anything but RestSize
// before Finish has returned.
//
// Errors: ErrTruncated, ErrAuthTag, ErrPreambleCRC, errSegmentCount, ErrTag,
// errCompressed, ErrTooLarge, errNonceExhausted, ErrKeys.
func (d *Decoder) Open(head []byte) (Header, error) {
	if len(head) != d.HeadSize() {
		return Header{}, fmt.Errorf("%w: head of %d, need %d", ErrTruncated, len(head), d.HeadSize())
	}
	if d.Repeats(head) {
		return d.opened, nil
	}
	preamble := head[:PreambleSize]
	switch {
	case d.layout.secure && d.layout.rev == Rev0:
		if err := d.dir.peek(d.early.peeked[:], head); err != nil {
			return Header{}, err
		}
		preamble = d.early.peeked[:]
	case d.layout.secure:
		if _, err := d.dir.open(head); err != nil {
			return Header{}, err
		}
	}
	h, err := ParsePreamble(preamble)
	if err != nil {
		return Header{}, err
	}
	if d.bounds[h.Tag].Segments == 0 {
		return Header{}, fmt.Errorf("%w: %v", ErrTag, h.Tag)
	}
	if h.Compressed() && d.comp == nil {
		return Header{}, fmt.Errorf("%w: %v, but no compression was negotiated", errCompressed, h.Tag)
	}
	if err := d.limits.check(&h); err != nil {
		return Header{}, err
	}
	if err := d.bounds.check(&h); err != nil {
		return Header{}, err
	}
	if _, ok := d.layout.frameSize(&h); !ok {
		return Header{}, fmt.Errorf("%w: whole frame of %v", ErrTooLarge, h.Tag)
	}
	if !d.layout.secure {
		d.last, d.opened = [PreambleSize]byte(preamble), h
	}
	return h, nil
}

// Repeats says that Open would return once more the header that it has returned last. p begins
// with the head of a frame. Never in secure mode.
func (d *Decoder) Repeats(p []byte) bool {
	if d.opened.Tag == 0 || len(p) < PreambleSize {
		return false
	}
	le, last := binary.LittleEndian, d.last[:]
	return le.Uint64(p) == le.Uint64(last) && le.Uint64(p[8:]) == le.Uint64(last[8:]) &&
		le.Uint64(p[16:]) == le.Uint64(last[16:]) && le.Uint64(p[24:]) == le.Uint64(last[24:])
}

// RestSize is the number of bytes on the wire behind the head of a frame whose
// header Open has returned. It can be 0; Finish must be called nevertheless.
func (d *Decoder) RestSize(h Header) int {
	return int(min(d.layout.restSize(&h), maxInt))
}

// Finish verifies and decrypts a frame, in place. h and head are those of Open,
// rest the RestSize bytes that follow. In crc mode head is not looked at.
//
// The segments lie in rest, and segment 0 of secure mode of revision 1 in head.
// Exceptions: compressed frames (see Decompress), and, if rest does not directly
// follow head in one buffer, a segment 0 of more than 48 bytes in secure mode of
// revision 1, which is put together in fresh memory. Secure mode of revision 0
// needs head and rest in one buffer as well, or else copies the frame twice.
//
// Errors: ErrTruncated, ErrSegmentCRC, ErrAuthTag, errLateStatus, ErrDecompress,
// ErrTooLarge (decompressed), errNonceExhausted, ErrKeys, errMisuse.
func (d *Decoder) Finish(h Header, head, rest []byte) (f Frame, err error) {
	f.Header = h
	if err = d.FinishInto(&f, head, rest); err != nil {
		f = Frame{}
	}
	return f, err
}

// FinishInto is Finish for a frame that has its Header already; it sets all else. After an
// error only that means anything. To hand on a frame by value takes as long as to check its
// fixed parts.
func (d *Decoder) FinishInto(f *Frame, head, rest []byte) (err error) {
	f.Seg, f.CRCs, f.Aborted = [MaxSegments][]byte{}, CRCs{}, false
	before, after := d.layout.split(&f.Header)
	if err = d.checkParts(&f.Header, uint64(len(rest)), before+uint64(f.Len[3])+after); err != nil {
		return err
	}
	switch {
	case !d.layout.secure:
		at, n := int(before), int(f.Len[3])
		f.Seg[3] = takeAt(rest, at, n)
		err = d.finishCRC(f, rest, rest[at+n:], false, 0)
	case d.layout.rev == Rev0:
		err = d.finishSecureRev0(f, head, rest)
	default:
		err = d.finishSecureRev1(f, head, rest)
	}
	if err == nil && f.Compressed() {
		err = d.decompress(f)
	}
	return err
}

// checkParts guards the slicing that follows: h is a header as Open makes them,
// and there are as many bytes as it says.
func (d *Decoder) checkParts(h *Header, have, need uint64) error {
	if h.Num < 1 || h.Num > MaxSegments {
		return fmt.Errorf("%w: header with %d segments", errMisuse, h.Num)
	}
	for i := h.Num; i < MaxSegments; i++ {
		if h.Len[i] != 0 {
			return fmt.Errorf("%w: header with a length for segment %d of %d", errMisuse, i, h.Num)
		}
	}
	if have != need {
		return fmt.Errorf("%w: rest of %v has %d, need %d", ErrTruncated, h.Tag, have, need)
	}
	return nil
}

// finishCRC takes segments 0 to 2 out of prefix, and checks the crcs, then late_status.
// Segment 3 is in f, or apart from it, with its crc. suffix is what stands behind it.
func (d *Decoder) finishCRC(f *Frame, prefix, suffix []byte, apart bool, dataCRC uint32) error {
	at := 0
	for i := range MaxSegments - 1 {
		n := int(f.Len[i])
		if n == 0 {
			continue
		}
		seg := prefix[at : at+n : at+n]
		f.Seg[i] = seg
		if at += n; i > 0 || d.layout.rev == Rev0 {
			continue
		}
		if !d.skipCRC {
			crc, want := SegmentCRC(SegmentCRCInit, seg), binary.LittleEndian.Uint32(prefix[at:])
			if crc != want {
				return crcError(0, crc, want)
			}
			f.CRCs.Set(0, crc)
		}
		at += crcSize
	}
	if len(suffix) == 0 {
		return nil
	}
	at = 1
	for i := d.layout.firstInEpilogue(); i < f.Num && !d.skipCRC; i++ {
		crc, want := SegmentCRCInit, binary.LittleEndian.Uint32(suffix[at:])
		at += crcSize
		if f.Len[i] > 0 {
			if crc = dataCRC; i < MaxSegments-1 || !apart {
				crc = SegmentCRC(SegmentCRCInit, f.Seg[i])
			}
			f.CRCs.Set(i, crc)
		}
		if crc != want {
			return crcError(i, crc, want)
		}
	}
	late := suffix[0]
	if late == lateByte(d.layout.rev) {
		return nil
	}
	return d.status(f, late)
}

func crcError(segment int, got, want uint32) error {
	return fmt.Errorf("%w: segment %d: %#08x, sent %#08x", ErrSegmentCRC, segment, got, want)
}

// status finishes f according to late_status.
func (d *Decoder) status(f *Frame, b byte) error {
	aborted, err := parseLate(d.layout.rev, b)
	if err != nil {
		return fmt.Errorf("%w: %#02x", err, b)
	}
	if aborted {
		f.Aborted, f.Seg, f.CRCs = true, [MaxSegments][]byte{}, CRCs{}
	}
	return nil
}

// Split gives the bytes of the rest of a frame before segment 3 and behind it,
// so that prefix + h.Len[3] + suffix = RestSize(h), in every mode. Use it
//
//   - in crc mode, to receive a large segment 3 into memory of its own; such a
//     frame is completed by FinishSplit,
//   - in secure mode, where Finish needs the whole rest in one piece, to choose
//     the start of the buffer for it: with the rest at offset o, segment 3 comes
//     to lie at o + prefix. A buffer that holds head and rest back to back with
//     (o + prefix) % 4096 = 0 gives data on a page boundary, decrypted in place.
func (d *Decoder) Split(h Header) (prefix, suffix int) {
	before, after := d.layout.split(&h)
	return int(min(before, maxInt)), int(min(after, maxInt))
}

// FinishSplit is Finish for a frame in crc mode whose segment 3 was received
// apart. prefix and suffix have the lengths that Split gave, dataCRC is the crc of
// segment 3, computed by SegmentCRC from SegmentCRCInit on; it is not looked at
// if the frame has fewer than four segments or the check is off. Seg[3] is
// left nil: the caller puts its slice there, unless the frame was aborted. CRCs
// knows it already.
//
// Errors: those of Finish, errMisuse in secure mode, errCompressed for a
// compressed frame, which needs Finish.
func (d *Decoder) FinishSplit(h Header, prefix []byte, dataCRC uint32, suffix []byte) (Frame, error) {
	if d.layout.secure {
		return Frame{}, fmt.Errorf("%w: split frame in secure mode", errMisuse)
	}
	if h.Compressed() {
		return Frame{}, fmt.Errorf("%w: split frame of %v", errCompressed, h.Tag)
	}
	before, after := d.layout.split(&h)
	if err := d.checkParts(&h, uint64(len(prefix)), before); err != nil {
		return Frame{}, err
	}
	if err := d.checkParts(&h, uint64(len(suffix)), after); err != nil {
		return Frame{}, err
	}
	f := Frame{Header: h}
	if err := d.finishCRC(&f, prefix, suffix, true, dataCRC); err != nil {
		return Frame{}, err
	}
	return f, nil
}
