package dataplane

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// peerCodec1 is the other end of a connection of msgr1. It names frames by the tags of
// msgr2.
type peerCodec1 struct {
	t      testing.TB
	cfg    frame1.Config
	signer frame1.Signer
	enc    *frame1.Encoder
	dec    *frame1.Decoder
}

func newPeerCodec1(t testing.TB, m wireMode) *peerCodec1 {
	p := &peerCodec1{t: t, cfg: *m.msgr1}
	if m.signed {
		p.signer = mixed{}
	}
	p.enc, p.dec = frame1.NewEncoder(p.cfg, p.signer, [136]byte{}), frame1.NewDecoder(p.cfg, p.signer, frame.DefaultLimits())
	return p
}

// mixed is a signer that sees every field.
type mixed struct{}

func (mixed) Sign(s frame1.Signed) uint64 {
	x := uint64(1)
	for _, v := range [...]uint64{
		uint64(s.HeaderCRC), uint64(s.FrontCRC), uint64(s.MiddleCRC), uint64(s.DataCRC), uint64(s.FrontLen), uint64(s.MiddleLen),
		uint64(s.DataLen), s.Seq,
	} {
		x = x*6364136223846793005 + v
	}
	return x
}

func (p *peerCodec1) ours(opt *OpenOptions) {
	opt.Codec = Msgr1(frame1.NewEncoder(p.cfg, p.signer, [136]byte{}), frame1.NewDecoder(p.cfg, p.signer, frame.DefaultLimits()))
	opt.Source = Source{Type: 4, Num: 17}
}

// message is a message of the peer, behind an ack unless that is 0.
func (p *peerCodec1) message(seq, ack uint64, m *Message) (b []byte) {
	if ack > 0 {
		b = frame1.AppendAck(b, ack)
	}
	hd := frame1.Header{Seq: seq, TID: m.TID, Type: m.Type, Priority: m.Priority, DataOff: m.DataOff}
	return p.enc.AppendMessage(b, &hd, m.Front, m.Middle, m.Data)
}

func (p *peerCodec1) control(tag frame.Tag, body []byte) []byte {
	switch tag {
	case frame.TagAck:
		return frame1.AppendAck(nil, binary.LittleEndian.Uint64(body))
	case frame.TagKeepalive2:
		return append([]byte{byte(frame1.TagKeepalive2)}, body[:8]...)
	case frame.TagKeepalive2Ack:
		return frame1.AppendKeepaliveAck(nil, [8]byte(body))
	}
	p.t.Fatalf("msgr1 has no %v", tag)
	return nil
}

// decode parses whole frames.
func (p *peerCodec1) decode(b []byte) (frames []parsed, rest []byte) {
	p.t.Helper()
	for len(b) > 0 {
		tag := frame1.Tag(b[0])
		n, err := p.cfg.Size(tag)
		must(p.t, err)
		if len(b) < 1+n {
			p.t.Fatalf("half a frame on the wire: %d bytes", len(b))
		}
		body := b[1 : 1+n]
		b = b[1+n:]
		one := parsed{tag: map[frame1.Tag]frame.Tag{
			frame1.TagMessage: frame.TagMessage, frame1.TagAck: frame.TagAck, frame1.TagKeepalive: frame.TagKeepalive2,
			frame1.TagKeepalive2: frame.TagKeepalive2, frame1.TagKeepalive2Ack: frame.TagKeepalive2Ack,
		}[tag]}
		if one.tag == 0 {
			p.t.Fatalf("%v on the wire", tag)
		}
		one.seg[0] = bytes.Clone(body)
		if tag == frame1.TagMessage {
			hd, err := p.dec.Header(body)
			must(p.t, err)
			one.hd1 = hd
			one.hd = frame.MessageHeader{
				Seq: hd.Seq, TID: hd.TID, Type: hd.Type, Priority: hd.Priority, Version: hd.Version, DataOff: hd.DataOff,
				CompatVersion: hd.CompatVersion,
			}
			for i, n := range []uint32{hd.FrontLen, hd.MiddleLen, hd.DataLen} {
				one.seg[i+1], b = bytes.Clone(b[:n]), b[n:]
			}
			must(p.t, p.dec.Footer(hd, b[:p.cfg.FooterSize()], frame1.SumsOf(one.seg[1], one.seg[2], one.seg[3])))
			b = b[p.cfg.FooterSize():]
		}
		frames = append(frames, one)
	}
	return frames, nil
}
