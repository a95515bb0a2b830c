//go:build !race

package sim_test

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// A socket of the adversary that follows msgr1: the bytes that it sends and receives. Its
// phases are phaseBanner, phaseSession (connect messages and replies), phaseSign (the number
// after SEQ is due) and phaseOpen.

// addrsOf are the addresses of a host of the adversary.
func (a *adversary) addrsOf(host netip.Addr, nonce uint32) (addrs []wire.Addr) {
	v2 := wire.Addr{Type: wire.AddrMsgr2, Nonce: nonce, AddrPort: netip.AddrPortFrom(host, foePort)}
	switch a.w.plan.protocol {
	case simMsgr1:
		return []wire.Addr{v2.WithType(wire.AddrLegacy)}
	case simMixed:
		return []wire.Addr{v2, v2.WithType(wire.AddrLegacy).WithPort(foePort + 1)}
	}
	return []wire.Addr{v2}
}

// at is the address of a node by the protocol that a socket speaks.
func (n *node) at(v1 bool) wire.Addr {
	if v1 {
		return n.addrs.V1()
	}
	return n.addr
}

// pick is the address of a node that a socket dials.
func (a *adversary) pick(to *node) wire.Addr {
	if a.w.plan.protocol == simMixed && !to.old() && a.rng.IntN(2) == 0 {
		return to.addrs.V1()
	}
	return to.addr
}

// talk1 is talk in msgr1.
type talk1 struct {
	enc       *frame1.Encoder
	form      frame1.Form
	dec       *frame1.Decoder
	asked     wire1.Connect // by whoever dialled, last
	challenge []byte        // that was sent to a node
}

func (s *foeSocket) begin1() {
	if s.to != nil {
		return // the acceptor begins
	}
	own := s.listens
	if s.a.rng.IntN(8) == 0 {
		own = s.a.anyAddr()
		s.a.did("v1: hello of any address")
	}
	seen := wire.Addr{Type: wire.AddrLegacy, AddrPort: netip.AddrPortFrom(s.a.w.nodes[0].host.IP(), uint16(s.a.rng.Uint32()))}
	s.write(wire1.AcceptorHello{Own: own, Seen: seen}.AppendTo(nil))
}

// hear1 takes one whole piece of the protocol out of the received bytes, false if there is none.
func (s *foeSocket) hear1() bool {
	p := s.in
	have := func(n int) bool { return len(p) >= n }
	switch s.phase {
	case phaseBanner:
		size := wire1.ConnectorHelloSize
		if s.to != nil {
			size = wire1.AcceptorHelloSize
		}
		if !have(size) {
			return false
		}
		s.phase = phaseSession
		s.heardHello1(s.taken(size))
	case phaseSign:
		if !have(wire1.SeqSize) {
			return false
		}
		q, _ := wire1.DecodeSeq(s.taken(wire1.SeqSize))
		s.a.seen.number(q.Received)
		s.opened1()
	case phaseOpen:
		return s.hearOpen1()
	default:
		return s.hearSession1()
	}
	return true
}

// taken is the next piece, which is remembered.
func (s *foeSocket) taken(n int) []byte {
	raw := slices.Clone(s.in[:n])
	s.take(n)
	if s.a.plan.proven || s.phase == phaseOpen { // else an authorizer would make the adversary another name
		s.a.seen.piece(raw)
	}
	return raw
}

func (s *foeSocket) heardHello1(p []byte) {
	if s.to == nil {
		h, err := wire1.DecodeConnectorHello(p)
		if err != nil {
			s.lost("is no hello", err)
			return
		}
		s.a.seen.address(h.Own)
		return
	}
	h, err := wire1.DecodeAcceptorHello(p)
	if err != nil {
		s.lost("is no hello", err)
		return
	}
	s.a.seen.address(h.Own)
	own := s.addr
	if !s.feigns && s.a.rng.IntN(5) == 0 {
		own = s.a.anyAddr()
	}
	s.write(wire1.ConnectorHello{Own: own.WithType(wire.AddrLegacy)}.AppendTo(nil))
	if !s.strays() {
		s.connect1(s.connect())
	}
}

// hearSession1 takes a connect message, or a reply.
func (s *foeSocket) hearSession1() bool {
	if s.to == nil {
		if len(s.in) < wire1.ConnectSize {
			return false
		}
		c, err := wire1.DecodeConnect(s.in[:wire1.ConnectSize])
		if err != nil {
			s.lost("is no connect message", err)
			return false
		}
		size := wire1.ConnectSize + int(c.AuthorizerLen)
		if len(s.in) < size {
			return false
		}
		p := s.taken(size)
		s.a.seen.number(uint64(c.GlobalSeq), uint64(c.ConnectSeq))
		if !s.strays() {
			s.heardConnect1(c, p[wire1.ConnectSize:])
		}
		return true
	}
	if len(s.in) < wire1.ReplySize {
		return false
	}
	r, err := wire1.DecodeReply(s.in[:wire1.ReplySize])
	if err != nil {
		s.lost("is no reply", err)
		return false
	}
	size := wire1.ReplySize + int(r.AuthorizerLen)
	if r.Tag == wire1.TagSeq {
		size += wire1.SeqSize
	}
	if len(s.in) < size {
		return false
	}
	p := s.taken(size)
	s.a.seen.number(uint64(r.GlobalSeq), uint64(r.ConnectSeq))
	if !s.strays() {
		s.heardReply1(r, p[wire1.ReplySize:])
	}
	return true
}

// connect is a connect message, with fields that the seed chooses.
func (s *foeSocket) connect() wire1.Connect {
	a := s.a
	c := wire1.Connect{
		Features: wire.FeaturesPacific, HostType: s.name.Type, GlobalSeq: 1, Protocol: wire1.Protocol(s.name.Type, wire.OSD),
	}
	if s.feigns {
		return c
	}
	number := func(n *uint32) {
		if a.rng.IntN(4) == 0 {
			*n = uint32(a.number())
		}
	}
	number(&c.GlobalSeq)
	number(&c.ConnectSeq)
	c.Flags = uint8(a.rng.IntN(2))
	if a.rng.IntN(10) == 0 {
		c.Features = wire.Features(a.number())
		a.did("v1: connect with any features")
	}
	if a.rng.IntN(16) == 0 {
		c.HostType, c.Protocol, c.Flags = wire.EntityType(a.number()), uint32(a.number()), uint8(a.rng.Uint32())
		a.did("v1: connect as any type")
	}
	return c
}

// connect1 asks, with the first authorizer: a name, its own or not.
func (s *foeSocket) connect1(c wire1.Connect) {
	a := s.a
	s.claim = s.name
	if a.plan.proven && !s.feigns && a.rng.IntN(5) == 0 {
		s.claim = a.honestName()
		a.did("v1: claim another name")
	}
	c.AuthMethod = uint32(auth.None)
	authorizer := binary.LittleEndian.AppendUint64(s.claim.AppendTo([]byte{1}), a.number())
	if a.plan.proven {
		c.AuthMethod, authorizer = uint32(auth.Cephx), s.claim.AppendTo(nil)
	}
	s.authorize1(c, authorizer)
}

func (s *foeSocket) authorize1(c wire1.Connect, authorizer []byte) {
	c.AuthorizerLen = uint32(len(authorizer))
	p := c.AppendTo(nil)
	s.old.asked, _ = wire1.DecodeConnect(p) // as the node has it: bit 63 of the features stands for others
	s.write(append(p, authorizer...))
}

// heardReply1 is an answer to a connect message.
func (s *foeSocket) heardReply1(r wire1.Reply, rest []byte) {
	c := s.old.asked
	switch r.Tag {
	case wire1.TagChallengeAuthorizer:
		s.key = nodetest.ProofKey(s.name, rest)
		answer := nodetest.ProofOf(s.key)
		if s.claim != s.name {
			answer = s.a.bytes(32)
		}
		s.authorize1(c, answer)
	case wire1.TagReady, wire1.TagSeq:
		s.codecs1(c.Features & r.Features)
		if r.Tag == wire1.TagSeq {
			n := s.inSeq
			if !s.feigns {
				s.a.maybe(&n)
			}
			s.write(wire1.Seq{Received: n}.AppendTo(nil))
		}
		s.opened1()
	case wire1.TagResetSession:
		c.ConnectSeq = 0
		s.connect1(c)
	case wire1.TagRetrySession:
		c.ConnectSeq = r.ConnectSeq
		s.connect1(c)
	case wire1.TagRetryGlobal:
		c.GlobalSeq = r.GlobalSeq + 1
		s.connect1(c)
	default:
		if s.a.rng.IntN(2) == 0 {
			s.close()
		} else {
			s.connect1(s.connect())
		}
	}
}

// heardConnect1 answers a node that dialled it.
func (s *foeSocket) heardConnect1(c wire1.Connect, authorizer []byte) {
	a := s.a
	s.old.asked = c
	if auth.Method(c.AuthMethod) == auth.Cephx && s.old.challenge == nil && a.rng.IntN(16) > 0 {
		s.old.challenge = a.bytes(32)
		s.key = nodetest.ProofKey(wire.NewReader(authorizer).EntityName(), s.old.challenge)
		s.reply1(wire1.Reply{Tag: wire1.TagChallengeAuthorizer}, s.old.challenge)
		return
	}
	s.old.challenge = nil // the next authorizer begins anew
	s.answerConnect1(c)
}

// answerConnect1 answers, for many sockets without end.
func (s *foeSocket) answerConnect1(c wire1.Connect) {
	a := s.a
	r := wire1.Reply{Features: wire.FeaturesPacific, GlobalSeq: c.GlobalSeq, ConnectSeq: c.ConnectSeq, Protocol: c.Protocol, Flags: uint8(a.rng.IntN(2))}
	any := func(n *uint32) {
		if a.rng.IntN(2) == 0 {
			*n = uint32(a.number())
		}
	}
	switch s.choice(12) {
	case 0:
		r.Tag = wire1.TagWait
	case 1:
		r.Tag = wire1.TagRetrySession
		any(&r.ConnectSeq)
	case 2:
		r.Tag = wire1.TagRetryGlobal
		any(&r.GlobalSeq)
	case 3:
		r.Tag = wire1.TagResetSession
	case 4:
		r.Tag = wire1.TagFeatures
		r.Features = wire.Features(a.number())
	case 5:
		r.Tag = wire1.TagBadAuthorizer
	case 6:
		r.Tag = wire1.TagBadProtoVer
		any(&r.Protocol)
	case 7:
		return // nothing
	default:
		r.Tag, r.ConnectSeq = wire1.TagReady, c.ConnectSeq+1
		if c.ConnectSeq > 0 || a.rng.IntN(4) == 0 {
			r.Tag = wire1.TagSeq
		}
		if a.rng.IntN(4) == 0 {
			any(&r.GlobalSeq)
			any(&r.ConnectSeq)
		}
		if a.rng.IntN(10) == 0 {
			r.Features = wire.Features(a.number())
		}
	}
	a.did("v1: answer with " + r.Tag.String())
	s.reply1(r, nil)
	if r.Tag == wire1.TagReady || r.Tag == wire1.TagSeq {
		told, _ := wire1.DecodeReply(r.AppendTo(nil))
		s.codecs1(c.Features & told.Features)
	}
	switch r.Tag {
	case wire1.TagReady:
		s.opened1()
	case wire1.TagSeq:
		s.phase = phaseSign
	}
}

func (s *foeSocket) reply1(r wire1.Reply, proof []byte) {
	r.AuthorizerLen = uint32(len(proof))
	p := append(r.AppendTo(nil), proof...)
	if r.Tag == wire1.TagSeq {
		n := s.inSeq
		s.a.maybe(&n)
		p = wire1.Seq{Received: n}.AppendTo(p)
	}
	s.write(p)
}

// codecs1 begins to read and write messages. It never checks the signatures of nodes.
func (s *foeSocket) codecs1(features wire.Features) {
	s.old.form = wire1.FormOf(features)
	cfg := frame1.Config{Form: s.old.form}
	var signer frame1.Signer
	if len(s.key) > 0 {
		var err error
		if signer, err = cephx.NewSigner(s.key, features.Has(wire1.FeatureCephxV2)); err != nil {
			s.a.w.fail("adversary: %v", err)
			return
		}
	}
	s.old.enc = frame1.NewEncoder(cfg, signer, [136]byte{})
	s.old.dec = frame1.NewDecoder(cfg, nil, frame.DefaultLimits())
}

// opened1 is the begin of the data phase.
func (s *foeSocket) opened1() {
	s.opened()
	s.a.did("v1: open a session")
}

// hearOpen1 takes a piece of the protocol on an open connection.
func (s *foeSocket) hearOpen1() bool {
	if len(s.in) == 0 {
		return false
	}
	tag := frame1.Tag(s.in[0])
	n, err := s.old.form.Size(tag)
	if err != nil {
		s.lost("has an unknown tag", err)
		return false
	}
	if len(s.in) < 1+n {
		return false
	}
	if tag != frame1.TagMessage {
		s.heard1(tag, s.taken(1 + n)[1:])
		return true
	}
	h, err := s.old.dec.Header(s.in[1 : 1+n])
	if err != nil {
		s.lost("has a bad header", err)
		return false
	}
	payload := 1 + n + int(h.PayloadSize())
	size := payload + s.old.form.FooterSize()
	if len(s.in) < size {
		return false
	}
	p := s.taken(size)
	front := p[1+n:][:h.FrontLen]
	middle := p[1+n+int(h.FrontLen):][:h.MiddleLen]
	data := p[1+n+int(h.FrontLen+h.MiddleLen) : payload]
	if err := s.old.dec.Footer(h, p[payload:], frame1.SumsOf(front, middle, data)); err != nil {
		s.lost("is damaged", err)
		return false
	}
	if !s.strays() {
		s.gotMessage(h.Seq, front)
	}
	return true
}

func (s *foeSocket) heard1(tag frame1.Tag, p []byte) {
	if s.strays() {
		return
	}
	switch tag {
	case frame1.TagAck:
		seq, _ := frame1.ParseAck(p)
		s.a.seen.number(seq)
	case frame1.TagKeepalive2:
		if s.a.rng.IntN(4) > 0 {
			stamp, _ := frame1.ParseKeepalive(p)
			s.write(frame1.AppendKeepaliveAck(nil, stamp))
		}
	case frame1.TagClose:
		s.close()
	}
}
