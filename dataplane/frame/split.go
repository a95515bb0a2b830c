package frame

import "fmt"

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
