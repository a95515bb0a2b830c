//go:build !race

package sim_test

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

const again = unix.EAGAIN

// phase is how far a socket of the adversary is in the protocol.
type phase uint8

const (
	phaseBanner phase = iota
	phaseHello
	phaseAuth
	phaseSign
	phaseSession
	phaseOpen
)

// talk is the state of a socket that follows the protocol: the frames that it sent and
// received.
type talk struct {
	phase phase
	v1    bool // it speaks msgr1 (adversary_msgr1_test.go)
	old   talk1
	rev0  bool
	enc   *frame.Encoder
	dec   *frame.Decoder
	sum   heard

	name  wire.EntityName // of its own
	claim wire.EntityName // in its frames
	key   []byte

	addr                       wire.Addr // its own, in its frames
	clientCookie, serverCookie uint64
	inSeq, outSeq              uint64
	stubborn                   int  // above 0: it always sends the same answer
	feigns                     bool // see feign
}

// heard are the bytes that its signature covers: all bytes received in the handshake.
type heard struct {
	rx   []byte
	over bool
}

func (h *heard) received(p []byte) {
	if !h.over {
		h.rx = append(h.rx, p...)
	}
}

// newTalk chooses the identity that a socket claims.
func (a *adversary) newTalk(v1 bool) talk {
	t := talk{v1: v1, rev0: a.rng.IntN(6) == 0, addr: a.ownAddr()}
	types := []wire.EntityType{wire.OSD, wire.OSD, wire.Client, wire.Client, wire.Mon, wire.MDS, wire.Mgr}
	t.name = wire.EntityName{Type: types[a.rng.IntN(len(types))], ID: foeNames[a.rng.IntN(len(foeNames))]}
	t.claim = t.name
	if n := a.w.nodes[a.rng.IntN(len(a.w.nodes))]; a.plan.proven && n.server() && a.rng.IntN(2) == 0 {
		t.addr = n.at(v1)
	}
	t.clientCookie, t.serverCookie = a.rng.Uint64(), a.rng.Uint64()
	if a.rng.IntN(4) == 0 {
		t.stubborn = 1 + a.rng.IntN(24)
	}
	return t
}

// feign has a socket follow the protocol under the address of another node, until
// it is sent something, and leave then: the node is to dial that address.
func (s *foeSocket) feign() {
	for _, n := range s.a.w.nodes {
		if n != s.to && n.server() && n.m != nil {
			s.addr = n.at(s.v1)
		}
	}
	s.feigns, s.wild, s.drip, s.deaf, s.mute = true, 0, false, false, false
	s.name.Type = wire.OSD
}

// foeNames are the ids that the adversary can prove.
var foeNames = []string{"66", "67"}

// foeName says whether a name is the adversary's.
func foeName(n wire.EntityName) bool { return slices.Contains(foeNames, n.ID) }

// begin sends the first bytes of a socket.
func (s *foeSocket) begin() {
	if s.strays() {
		return
	}
	if s.v1 {
		s.begin1()
	} else {
		s.write(s.banner())
	}
}

func (s *foeSocket) banner() []byte {
	b := wire2.Banner{}
	if !s.rev0 {
		b.Supported = wire.BannerRevision1
	}
	return b.AppendTo(nil)
}

// strays has the socket break the protocol now, if its seed wants that.
func (s *foeSocket) strays() bool {
	if s.wild == 0 || s.a.rng.IntN(s.wild) > 0 {
		return false
	}
	s.a.mischief(s)
	return s.gone || s.a.rng.IntN(2) == 0 // or both
}

// hear decodes the whole frames among the received bytes.
func (s *foeSocket) hear() {
	for s.v1 && !s.gone && !s.deaf && s.hear1() {
	}
	for !s.gone && !s.v1 {
		if s.phase == phaseBanner {
			if len(s.in) < wire2.BannerSize {
				return
			}
			peer, _ := wire2.DecodeBanner(s.in[wire2.BannerPrefixSize:wire2.BannerSize])
			s.take(wire2.BannerSize)
			rev := frame.Rev1
			if s.rev0 || peer.Supported&wire.BannerRevision1 == 0 {
				rev = frame.Rev0
			}
			s.enc, s.dec = frame.NewEncoder(rev), frame.NewDecoder(rev, frame.DefaultLimits())
			s.phase = phaseHello
			if !s.strays() {
				s.sendHello()
			}
			continue
		}
		if len(s.in) < frame.PreambleSize {
			return
		}
		h, err := s.dec.Open(slices.Clone(s.in[:frame.PreambleSize]))
		if err != nil {
			s.lost("cannot be read", err)
			return
		}
		size := frame.PreambleSize + s.dec.RestSize(h)
		if len(s.in) < size {
			return
		}
		raw := slices.Clone(s.in[:size])
		f, err := s.dec.Finish(h, raw[:frame.PreambleSize], slices.Clone(raw[frame.PreambleSize:]))
		if err != nil {
			s.lost("is damaged", err)
			return
		}
		if f.Tag == frame.TagAuthSignature {
			s.sum.over = true
		}
		s.take(size)
		s.a.seen.remember(&f, raw)
		s.heard(&f)
	}
}

// lost is a frame that cannot be read. That must not be, unless the socket has
// spoilt the banners, so that both do not speak of the same revision.
func (s *foeSocket) lost(how string, err error) {
	s.deaf = true
	if !s.odd {
		s.a.w.fail("adversary: a node sent a frame that %s: %v", how, err)
	}
}

func (s *foeSocket) take(n int) {
	s.sum.received(s.in[:n])
	s.in = s.in[n:]
}

// frame makes a frame, or nothing before the banners.
func (s *foeSocket) frame(tag frame.Tag, segs ...[]byte) []byte {
	enc := s.enc
	if enc == nil {
		enc = frame.NewEncoder(frame.Rev1)
	}
	b, err := enc.AppendFrame(nil, tag, segs...)
	if err != nil {
		s.a.w.fail("adversary: %v", err)
	}
	return b
}

func (s *foeSocket) send(tag frame.Tag, segs ...[]byte) { s.write(s.frame(tag, segs...)) }

type framePayload interface{ AppendTo(dst []byte) []byte }

func (s *foeSocket) say(tag frame.Tag, p framePayload) { s.send(tag, p.AppendTo(nil)) }

func (s *foeSocket) acknowledge(seq uint64) {
	s.send(frame.TagAck, binary.LittleEndian.AppendUint64(nil, seq))
}

func (s *foeSocket) sendHello() {
	typ := s.claim.Type
	if s.a.rng.IntN(8) == 0 && !s.feigns {
		typ = wire.EntityType(s.a.rng.Uint32())
		s.a.did("hello of any type")
	}
	s.say(frame.TagHello, wire2.Hello{EntityType: typ, PeerAddr: s.target()})
}

// target is the address that it claims to have dialled.
func (s *foeSocket) target() wire.Addr {
	if s.to != nil && (s.feigns || s.a.rng.IntN(10) > 0) {
		return s.to.at(s.v1)
	}
	return s.a.anyAddr()
}

// heard is a frame of the node: it is answered as the protocol wants, or not.
func (s *foeSocket) heard(f *frame.Frame) {
	if s.strays() {
		return
	}
	switch f.Tag {
	case frame.TagHello:
		s.phase = phaseAuth
		if s.to != nil {
			s.requestAuth()
		}
	case frame.TagAuthReplyMore:
		more, _ := wire2.DecodeAuthMore(f.Seg[0])
		s.key = nodetest.ProofKey(s.name, more.Payload)
		answer := nodetest.ProofOf(s.key)
		if s.claim != s.name {
			answer = s.a.bytes(32)
		}
		s.say(frame.TagAuthRequestMore, wire2.AuthMore{Payload: answer})
	case frame.TagAuthBadMethod:
		if s.a.rng.IntN(2) == 0 {
			s.requestAuth()
		} else {
			s.close()
		}
	case frame.TagAuthDone:
		s.phase = phaseSign
		s.sign()
	case frame.TagAuthRequest:
		s.authRequested(f)
	case frame.TagAuthRequestMore:
		s.phase = phaseSign
		s.doneAuth()
	case frame.TagAuthSignature:
		s.phase = phaseSession
		if s.to != nil {
			s.openSession()
		}
	default:
		s.heardSession(f)
	}
}

// requestAuth says a name, its own or not.
func (s *foeSocket) requestAuth() {
	a := s.a
	s.claim = s.name
	if a.plan.proven && !s.feigns && a.rng.IntN(5) == 0 {
		s.claim = a.honestName()
		a.did("claim another name")
	}
	req := wire2.AuthRequest{Method: uint32(auth.None), PreferredModes: []uint32{uint32(auth.CRC)}}
	if a.plan.proven {
		req.Method, req.Payload = uint32(auth.Cephx), s.claim.AppendTo(nil)
	} else {
		// Form, name and global id.
		req.Payload = binary.LittleEndian.AppendUint64(s.claim.AppendTo([]byte{1}), a.number())
	}
	s.say(frame.TagAuthRequest, req)
}

// authRequested answers a node that dialled it.
func (s *foeSocket) authRequested(f *frame.Frame) {
	req, _ := wire2.DecodeAuthRequest(f.Seg[0])
	if auth.Method(req.Method) == auth.None {
		s.phase = phaseSign
		s.doneAuth()
		return
	}
	challenge := s.a.bytes(32)
	s.key = nodetest.ProofKey(wire.NewReader(req.Payload).EntityName(), challenge)
	s.say(frame.TagAuthReplyMore, wire2.AuthMore{Payload: challenge})
}

func (s *foeSocket) doneAuth() {
	s.say(frame.TagAuthDone, wire2.AuthDone{GlobalID: s.a.number(), Mode: uint32(auth.CRC)})
	s.sign()
}

// sign sends the signature of the received bytes.
func (s *foeSocket) sign() {
	var sig wire2.AuthSignature
	if len(s.key) > 0 {
		copy(sig[:], nodetest.MAC(s.key, s.sum.rx))
	}
	s.say(frame.TagAuthSignature, sig)
}

// heardSession takes a frame after the signatures.
func (s *foeSocket) heardSession(f *frame.Frame) {
	a := s.a
	switch f.Tag {
	case frame.TagClientIdent:
		ci, _ := wire2.DecodeClientIdent(f.Seg[0])
		s.clientCookie = ci.Cookie
		s.answerSession(ci.TargetAddr)
	case frame.TagSessionReconnect:
		sr, _ := wire2.DecodeSessionReconnect(f.Seg[0])
		s.clientCookie = sr.ClientCookie
		s.answerReconnect(sr)
	case frame.TagServerIdent:
		si, _ := wire2.DecodeServerIdent(f.Seg[0])
		s.serverCookie = si.Cookie
		s.opened()
	case frame.TagSessionReconnectOK:
		s.opened()
	case frame.TagSessionRetry, frame.TagSessionRetryGlobal:
		s.say(frame.TagSessionReconnect, s.reconnect())
	case frame.TagSessionReset:
		s.say(frame.TagClientIdent, s.clientIdent())
	case frame.TagWait:
		if a.rng.IntN(2) == 0 {
			s.close()
		}
	case frame.TagMessage:
		hd, err := frame.ParseMessageHeader(f.Seg[0])
		if err != nil {
			s.a.w.fail("adversary: %v", err)
			return
		}
		s.gotMessage(hd.Seq, f.Seg[1])
	case frame.TagKeepalive2:
		if a.rng.IntN(4) > 0 {
			s.send(frame.TagKeepalive2Ack, f.Seg[0])
		}
	}
}

// opened is the begin of the data phase.
func (s *foeSocket) opened() {
	s.phase = phaseOpen
	s.a.did("open a session")
	if s.feigns {
		for range 8 {
			s.sendMessage(s.outSeq+1, 100)
		}
		return
	}
	if s.a.rng.IntN(6) == 0 {
		s.a.did("abandon a session")
		if s.a.rng.IntN(2) == 0 {
			s.close()
		} else {
			s.mute, s.deaf = true, s.a.rng.IntN(2) == 0
		}
	}
}

// gotMessage acknowledges, or not.
func (s *foeSocket) gotMessage(seq uint64, front []byte) {
	if len(front) == simFront && s.a.w.lanes[binary.LittleEndian.Uint64(front)] != nil {
		s.a.w.fail("a message between honest nodes came to the adversary")
	}
	if s.feigns {
		s.a.did("leave with the address of a node")
		s.close()
		return
	}
	s.inSeq = seq
	switch s.a.rng.IntN(4) {
	case 0:
		s.a.did("leave a message unacknowledged")
	case 1:
		s.sendMessage(s.outSeq+1, s.a.size())
	case 2, 3:
		if s.v1 {
			s.write(frame1.AppendAck(nil, s.inSeq))
		} else {
			s.acknowledge(s.inSeq)
		}
	}
}
