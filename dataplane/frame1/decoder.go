package frame1

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Decoder checks the messages of one direction of one connection.
type Decoder struct {
	cfg    Config
	signer Signer
	limits frame.Limits
}

// NewDecoder makes a decoder. signer is nil unless every message must be signed;
// the old footer has no room for a signature. Of the limits those of front, middle
// and data count.
func NewDecoder(cfg Config, signer Signer, lim frame.Limits) *Decoder {
	if cfg.OldFooter {
		signer = nil
	}
	return &Decoder{cfg: cfg, signer: signer, limits: lim}
}

// Form is the form of the messages that it decodes.
func (d *Decoder) Form() Form { return d.cfg.Form }

// Header decodes the bytes after the tag of a message, and checks their crc and the
// lengths in them. The caller has read and allocated nothing for the rest yet.
//
// Errors: [frame.ErrTruncated], [errHeaderCRC], [frame.ErrTooLarge].
func (d *Decoder) Header(p []byte) (Header, error) {
	h, err := parseHeader(p, d.cfg.Form)
	if err != nil {
		return Header{}, err
	}
	if crc := frame.SegmentCRC(0, p[:len(p)-4]); crc != h.CRC {
		return Header{}, fmt.Errorf("%w: %#x, computed %#x", errHeaderCRC, h.CRC, crc)
	}
	for _, s := range [...]struct {
		name       string
		len, limit uint32
	}{
		{"front", h.FrontLen, d.limits.Front}, {"middle", h.MiddleLen, d.limits.Middle}, {"data", h.DataLen, d.limits.Data},
	} {
		if s.len > s.limit {
			return Header{}, fmt.Errorf("%w: %s of %d bytes, limit %d", frame.ErrTooLarge, s.name, s.len, s.limit)
		}
	}
	return h, nil
}

// ChecksData says whether Footer compares the crc of the data: else a caller need not compute it. The
// sender may still have left it out.
func (d *Decoder) ChecksData() bool { return !d.cfg.NoDataCRC }

// Footer decodes the footer p of the message with the header h, and compares it
// with the sums of the received bytes.
//
// Errors: [frame.ErrTruncated], [errAborted], [frame.ErrSegmentCRC], [errUnsigned],
// [ErrSignature].
func (d *Decoder) Footer(h Header, p []byte, s Sums) error {
	t, err := parseFooter(p, d.cfg.Form)
	if err != nil {
		return err
	}
	// Somebody on the way can set the flag, which is not signed, but not the crc.
	left := t.flags&flagNoDataCRC != 0 && (d.signer == nil || t.Data == 0)
	data := d.ChecksData() && !left
	switch {
	case t.flags&flagComplete == 0:
		return fmt.Errorf("%w: seq %d", errAborted, h.Seq)
	case t.Front != s.Front:
		return fmt.Errorf("%w: front of seq %d: %#x, computed %#x", frame.ErrSegmentCRC, h.Seq, t.Front, s.Front)
	case t.Middle != s.Middle:
		return fmt.Errorf("%w: middle of seq %d: %#x, computed %#x", frame.ErrSegmentCRC, h.Seq, t.Middle, s.Middle)
	case data && t.Data != s.Data:
		return fmt.Errorf("%w: data of seq %d: %#x, computed %#x", frame.ErrSegmentCRC, h.Seq, t.Data, s.Data)
	case d.signer == nil:
		return nil
	case t.flags&flagSigned == 0:
		return fmt.Errorf("%w: seq %d", errUnsigned, h.Seq)
	case d.signer.Sign(t.signed(&h)) != t.signature:
		return fmt.Errorf("%w: seq %d", ErrSignature, h.Seq)
	}
	return nil
}
