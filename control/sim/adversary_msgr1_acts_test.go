//go:build !race

package sim_test

import (
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// The mischief of msgr1.

// foeActs1 are possible at any time.
var foeActs1 = []foeAct{
	{name: "half-close", do: func(s *foeSocket) { s.on.drv.EndWriting(s.s) }},
	{name: "close", do: (*foeSocket).close},
	{name: "speak another protocol", do: func(s *foeSocket) { s.write([]byte("GET / HTTP/1.1\r\n\r\n")) }},
	{name: "speak msgr2", do: func(s *foeSocket) { s.write(wire2.Banner{Supported: 1}.AppendTo(nil)) }},
	{name: "hello", do: func(s *foeSocket) {
		if s.to == nil {
			s.write(wire1.AcceptorHello{Own: s.a.anyAddr(), Seen: s.a.anyAddr()}.AppendTo(nil))
		} else {
			s.write(wire1.ConnectorHello{Own: s.a.anyAddr()}.AppendTo(nil))
		}
	}},
	{name: "hello with an address of any bytes", do: func(s *foeSocket) {
		p := wire1.ConnectorHello{Own: s.a.anyAddr()}.AppendTo(nil)
		copy(p[wire1.BannerSize:], s.a.bytes(wire1.AddrSize))
		s.write(p)
	}},
	{name: "connect", do: func(s *foeSocket) { s.connect1(s.connect()) }},
	{name: "connect without an authorizer", do: func(s *foeSocket) { s.authorize1(s.connect(), nil) }},
	{name: "connect with any authorizer", do: func(s *foeSocket) {
		c := s.connect()
		c.AuthMethod = uint32(s.a.number())
		s.authorize1(c, s.a.bytes(s.a.rng.IntN(4000)))
	}},
	{name: "announce any authorizer", do: func(s *foeSocket) {
		c := s.connect()
		c.AuthorizerLen = uint32(s.a.number())
		s.write(c.AppendTo(nil))
		s.mute = s.a.rng.IntN(2) == 0
	}},
	{name: "any reply", do: func(s *foeSocket) {
		a := s.a
		s.reply1(wire1.Reply{
			Tag: wire1.Tag(a.rng.IntN(18)), Features: wire.Features(a.number()), GlobalSeq: uint32(a.number()), ConnectSeq: uint32(a.number()),
			Protocol: uint32(a.number()), Flags: uint8(a.rng.Uint32()),
		}, a.bytes(a.rng.IntN(5000)))
	}},
	{name: "open what was not asked", do: func(s *foeSocket) {
		s.odd = true
		s.codecs1(wire.FeaturesPacific)
		s.reply1(wire1.Reply{Tag: wire1.TagReady, Features: wire.FeaturesPacific, GlobalSeq: 1, ConnectSeq: 1, Protocol: wire1.Protocol(wire.OSD, wire.OSD)}, nil)
		s.sendMessage(s.outSeq+1, s.a.size())
	}},
	{name: "sequence", do: func(s *foeSocket) { s.write(wire1.Seq{Received: s.a.number()}.AppendTo(nil)) }},
	{name: "any bytes", do: func(s *foeSocket) { s.write(s.a.bytes(s.a.rng.IntN(3000))) }},
	{name: "replay a piece", do: func(s *foeSocket) {
		if list := s.a.seen.frames; len(list) > 0 {
			s.write(list[s.a.rng.IntN(len(list))])
		}
	}},
	{name: "stop to read", do: func(s *foeSocket) { s.deaf = true }},
}

// foeDataActs1 are those of the data phase.
var foeDataActs1 = append(slices.Clone(messageActs), []foeAct{
	{name: "announce a message that never comes", do: func(s *foeSocket) {
		h, l := s.header1(s.outSeq+1), s.a.plan.limits
		h.FrontLen, h.MiddleLen, h.DataLen, h.DataOff = l.Front, l.Middle, l.Data, uint16(s.a.rng.Uint32())
		s.write(append(s.old.enc.AppendHeader(nil, &h), s.a.bytes(s.a.rng.IntN(100))...))
	}},
	{name: "announce any lengths", do: func(s *foeSocket) {
		h := s.header1(s.outSeq + 1)
		h.FrontLen, h.MiddleLen, h.DataLen = uint32(s.a.number()), uint32(s.a.number()), uint32(s.a.number())
		s.write(append(s.old.enc.AppendHeader(nil, &h), s.a.bytes(s.a.rng.IntN(9000))...))
	}},
	{name: "bad crc of a header", do: func(s *foeSocket) { s.damaged1(1, s.old.form.HeaderSize()) }},
	{name: "bad footer", do: func(s *foeSocket) { s.damaged1(-s.old.form.FooterSize(), s.old.form.FooterSize()) }},
	{name: "bad crc of a segment", do: func(s *foeSocket) { s.damaged1(1+s.old.form.HeaderSize(), 50) }},
	{name: "aborted message", do: func(s *foeSocket) {
		b := s.message(s.outSeq+1, 50)
		b[len(b)-1] &^= 1 // the flags: not complete
		s.write(b)
	}},
	{name: "unsigned message", do: func(s *foeSocket) {
		enc := s.old.enc
		s.old.enc = frame1.NewEncoder(frame1.Config{Form: s.old.form}, nil, [136]byte{})
		s.write(s.message(s.outSeq+1, 50))
		s.old.enc = enc
	}},
	{name: "acknowledge", do: func(s *foeSocket) { s.write(frame1.AppendAck(nil, s.inSeq)) }},
	{name: "acknowledge anything", do: func(s *foeSocket) { s.write(frame1.AppendAck(nil, s.a.number())) }},
	{name: "keepalives", do: func(s *foeSocket) {
		for range 1 + s.a.rng.IntN(50) {
			s.write(s.old.form.AppendKeepalive(nil, [8]byte(s.a.bytes(8))))
		}
	}},
	{name: "old keepalive", do: func(s *foeSocket) { s.write([]byte{byte(frame1.TagKeepalive)}) }},
	{name: "keepalive ack unasked", do: func(s *foeSocket) { s.write(frame1.AppendKeepaliveAck(nil, [8]byte(s.a.bytes(8)))) }},
	{name: "say that it closes", do: func(s *foeSocket) { s.write([]byte{byte(frame1.TagClose)}) }},
	{name: "unknown tag", do: func(s *foeSocket) { s.write([]byte{byte(s.a.rng.Uint32())}) }},
}...)

// header1 is one of a message, without lengths.
func (s *foeSocket) header1(seq uint64) frame1.Header {
	a := s.a
	return frame1.Header{
		Seq: seq, TID: a.number(), Type: uint16(a.rng.Uint32()), Priority: uint16(a.rng.Uint32()), Version: uint16(a.rng.Uint32()),
		CompatVersion: uint16(a.rng.Uint32()), SrcType: uint8(a.rng.Uint32()), SrcNum: int64(a.number()), DataOff: uint16(a.rng.Uint32()),
	}
}

// message1 makes one with a payload of so many bytes.
func (s *foeSocket) message1(seq uint64, size int) []byte {
	h := s.header1(seq)
	var segs [3][]byte
	segs[s.a.rng.IntN(3)] = s.a.bytes(size)
	return s.old.enc.AppendMessage(nil, &h, segs[0], segs[1], segs[2])
}

// damaged1 sends a message with a bit of n bytes turned, from offset at on; a negative offset
// counts from the end.
func (s *foeSocket) damaged1(at, n int) {
	b := s.message(s.outSeq+1, 50)
	if at < 0 {
		at += len(b)
	}
	b[at+s.a.rng.IntN(n)] ^= 1 << s.a.rng.IntN(8)
	s.write(b)
}
