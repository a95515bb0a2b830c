package frame1

import "github.com/ringmsgr/ringmsgr/dataplane/frame"

// Config is the part of a connection's settings that both directions share.
type Config struct {
	Form
	// NoDataCRC leaves out the crc of the data that we send, and tells the peer so
	// (ms_crc_data = false).
	NoDataCRC bool
}

// Encoder makes the messages of one direction of one connection.
type Encoder struct {
	cfg    Config
	signer Signer
	peer   [addrSize]byte
}

// NewEncoder makes an encoder. signer is nil unless messages are signed; the old
// footer has no room for it. peer is the legacy address of the peer, for the old
// header alone.
func NewEncoder(cfg Config, signer Signer, peer [136]byte) *Encoder {
	if cfg.OldFooter {
		signer = nil
	}
	return &Encoder{cfg: cfg, signer: signer, peer: peer}
}

// Form is the form of the messages that it makes.
func (e *Encoder) Form() Form { return e.cfg.Form }

// Overhead is the size of a message without its payload, in bytes.
func (e *Encoder) Overhead() int { return 1 + e.cfg.HeaderSize() + e.cfg.FooterSize() }

// AppendHeader appends the tag and the header of a message, and sets its CRC, which
// AppendFooter needs. All other fields are the caller's.
func (e *Encoder) AppendHeader(dst []byte, h *Header) []byte {
	dst = append(dst, byte(TagMessage))
	from := len(dst)
	dst = h.appendTo(dst, e.cfg.Form, &e.peer)
	h.CRC = frame.SegmentCRC(0, dst[from:])
	return le.AppendUint32(dst, h.CRC)
}

// AppendFooter appends the footer of the message whose header h AppendHeader has
// made last. The crc of the data is ignored if it is switched off.
func (e *Encoder) AppendFooter(dst []byte, h *Header, s Sums) []byte {
	t := footer{Sums: s, flags: flagComplete}
	if e.cfg.NoDataCRC {
		t.Data = 0
		t.flags |= flagNoDataCRC
	}
	if e.signer != nil {
		t.signature = e.signer.Sign(t.signed(h))
		t.flags |= flagSigned
	}
	return t.appendTo(dst, e.cfg.Form)
}

// SumsData says whether AppendFooter writes the crc of the data: else a caller need not compute it.
func (e *Encoder) SumsData() bool { return !e.cfg.NoDataCRC }

// AppendMessage appends a whole message. It sets the lengths of h and its CRC.
func (e *Encoder) AppendMessage(dst []byte, h *Header, front, middle, data []byte) []byte {
	h.FrontLen, h.MiddleLen, h.DataLen = uint32(len(front)), uint32(len(middle)), uint32(len(data))
	dst = e.AppendHeader(dst, h)
	dst = append(append(append(dst, front...), middle...), data...)
	return e.AppendFooter(dst, h, SumsOf(front, middle, data))
}
