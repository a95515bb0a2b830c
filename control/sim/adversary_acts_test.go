//go:build !race

package sim_test

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// act does one thing: it opens sockets, or does something on one that is there.
func (a *adversary) act() {
	switch k := a.rng.IntN(100); {
	case k < 12 || len(a.sockets) == 0:
		if to := a.victim(); to != nil {
			a.did("dial")
			a.dial(to)
		}
	case k < 13:
		if a.rng.IntN(8) == 0 {
			a.flood()
		}
	case k < 14:
		a.hosts[a.rng.IntN(len(a.hosts))].host.ResetSome()
		a.did("reset")
	case k < 30:
		// Late phases of the protocol are rare: sockets that reach them act more often.
		for range 4 {
			if s := a.sockets[a.rng.IntN(len(a.sockets))]; s.phase == phaseOpen {
				a.mischief(s)
				return
			}
		}
	default:
		s := a.sockets[a.rng.IntN(len(a.sockets))]
		if s.wild > 0 || s.phase == phaseOpen || a.rng.IntN(10) == 0 {
			a.mischief(s)
		}
	}
}

// victim is a node that listens, nil if there is none now.
func (a *adversary) victim() *node {
	n := a.w.nodes[a.rng.IntN(len(a.w.nodes))]
	if n.m == nil || !n.server() || !n.addr.AddrPort.IsValid() {
		return nil
	}
	return n
}

// flood opens many sockets that get no further than their dial, or their banner.
func (a *adversary) flood() {
	to := a.victim()
	if to == nil {
		return
	}
	a.did("flood")
	mute, deaf := a.rng.IntN(2) == 0, a.rng.IntN(2) == 0
	for range 20 + a.rng.IntN(140) {
		if s := a.dial(to); s != nil {
			s.mute, s.deaf = mute, deaf || !mute
		}
	}
}

// mischief does one thing on a socket that the protocol does not ask for, or not
// now.
func (a *adversary) mischief(s *foeSocket) {
	if !s.up {
		return
	}
	list, data, protocol := foeActs, foeDataActs, ""
	if s.v1 {
		list, data, protocol = foeActs1, foeDataActs1, foeV1
	}
	if s.phase == phaseOpen && a.rng.IntN(4) > 0 {
		list = data
	}
	act := list[a.rng.IntN(len(list))]
	if act.proven && !a.plan.proven {
		return
	}
	a.did(protocol + act.name)
	s.odd = s.odd || s.phase == phaseBanner || s.phase == phaseHello || s.v1 && s.phase != phaseOpen
	act.do(s)
}

// foeV1 begins the names of acts in msgr1.
const foeV1 = "v1: "

// foeAct is one kind of mischief.
type foeAct struct {
	name   string
	proven bool // where names are proven only
	do     func(s *foeSocket)
}

// foeActs are possible at any time.
var foeActs = []foeAct{
	{name: "half-close", do: func(s *foeSocket) { s.on.drv.EndWriting(s.s) }},
	{name: "close", do: (*foeSocket).close},
	{name: "speak another protocol", do: func(s *foeSocket) { s.write([]byte("GET / HTTP/1.1\r\n\r\n")) }},
	{name: "banner that requires anything", do: func(s *foeSocket) {
		s.write(wire2.Banner{Supported: s.a.number(), Required: s.a.number()}.AppendTo(nil))
	}},
	{name: "banner of any length", do: func(s *foeSocket) {
		b := wire2.Banner{Supported: 1}.AppendTo(nil)
		binary.LittleEndian.PutUint16(b[wire2.BannerPrefixSize-2:], uint16(s.a.rng.Uint32()))
		s.write(append(b, s.a.bytes(s.a.rng.IntN(40))...))
	}},
	{name: "wrong signature", do: func(s *foeSocket) {
		var sig wire2.AuthSignature
		copy(sig[:], s.a.bytes(len(sig)))
		s.say(frame.TagAuthSignature, sig)
	}},
	{name: "authentication of any method", do: func(s *foeSocket) {
		a := s.a
		s.say(frame.TagAuthRequest, wire2.AuthRequest{Method: uint32(a.number()), PreferredModes: []uint32{uint32(a.number()), 1}, Payload: a.bytes(a.rng.IntN(100))})
	}},
	{name: "one more round of authentication", do: func(s *foeSocket) {
		p := s.a.bytes(s.a.rng.IntN(4000))
		if s.to == nil {
			s.say(frame.TagAuthReplyMore, wire2.AuthMore{Payload: p})
		} else {
			s.say(frame.TagAuthRequestMore, wire2.AuthMore{Payload: p})
		}
	}},
	{name: "bad method", do: func(s *foeSocket) {
		list := []uint32{uint32(auth.None), uint32(auth.Cephx), uint32(s.a.number())}
		s.say(frame.TagAuthBadMethod, wire2.AuthBadMethod{Method: 1 + uint32(s.a.rng.IntN(3)), Result: int32(s.a.number()), AllowedMethods: list, AllowedModes: list})
	}},
	{name: "authentication done", do: func(s *foeSocket) {
		s.say(frame.TagAuthDone, wire2.AuthDone{GlobalID: s.a.number(), Mode: uint32(s.a.rng.IntN(4)), Payload: s.a.bytes(s.a.rng.IntN(50))})
	}},
	{name: "wrong tag", do: func(s *foeSocket) { s.send(frame.Tag(1+s.a.rng.IntN(22)), s.a.bytes(s.a.rng.IntN(60))) }},
	{name: "unknown tag", do: func(s *foeSocket) {
		s.preamble(frame.Header{Tag: frame.Tag(23 + s.a.rng.IntN(230)), Num: 1, Len: [4]uint32{uint32(s.a.rng.IntN(100))}})
	}},
	{name: "bad crc of a preamble", do: func(s *foeSocket) {
		b := s.frame(frame.TagKeepalive2, s.a.bytes(8))
		b[s.a.rng.IntN(frame.PreambleSize)] ^= 1 << s.a.rng.IntN(8)
		s.write(b)
	}},
	{name: "bad crc of a segment", do: func(s *foeSocket) {
		b := s.frame(frame.TagKeepalive2, s.a.bytes(8))
		b[frame.PreambleSize+s.a.rng.IntN(len(b)-frame.PreambleSize)] ^= 1 << s.a.rng.IntN(8)
		s.write(b)
	}},
	{name: "announce what never comes", do: (*foeSocket).announce},
	{name: "announce more than a tag holds", do: func(s *foeSocket) {
		h := frame.Header{Tag: frame.Tag(1 + s.a.rng.IntN(22)), Num: 1 + s.a.rng.IntN(4)}
		for i := range h.Num {
			h.Len[i] = uint32(s.a.number())
		}
		s.preamble(h)
		s.write(s.a.bytes(s.a.rng.IntN(9000)))
	}},
	{name: "control frame that never ends", do: func(s *foeSocket) {
		s.preamble(frame.Header{Tag: frame.Tag(1 + s.a.rng.IntN(22)), Num: 1, Len: [4]uint32{uint32(s.a.rng.IntN(64 << 10))}})
		s.write(s.a.bytes(s.a.rng.IntN(60 << 10)))
	}},
	{name: "client ident", do: func(s *foeSocket) { s.say(frame.TagClientIdent, s.clientIdent()) }},
	{name: "reconnect", do: func(s *foeSocket) { s.say(frame.TagSessionReconnect, s.reconnect()) }},
	{name: "server ident", do: func(s *foeSocket) { s.say(frame.TagServerIdent, s.serverIdent(s.a.anyAddr())) }},
	{name: "reconnect ok", do: func(s *foeSocket) {
		s.say(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{MsgSeq: s.a.number()})
	}},
	{name: "retry", do: func(s *foeSocket) {
		s.say(frame.TagSessionRetry, wire2.SessionRetry{ConnectSeq: s.a.number()})
	}},
	{name: "retry global", do: func(s *foeSocket) {
		s.say(frame.TagSessionRetryGlobal, wire2.SessionRetryGlobal{GlobalSeq: s.a.number()})
	}},
	{name: "reset a session", do: func(s *foeSocket) {
		s.say(frame.TagSessionReset, wire2.SessionReset{Full: s.a.rng.IntN(2) == 0})
	}},
	{name: "wait", do: func(s *foeSocket) { s.send(frame.TagWait, nil) }},
	{name: "missing features", do: func(s *foeSocket) {
		s.say(frame.TagIdentMissingFeatures, wire2.IdentMissingFeatures{Features: wire.Features(s.a.number())})
	}},
	{name: "replay a frame", do: func(s *foeSocket) {
		if list := s.a.seen.frames; len(list) > 0 {
			s.write(list[s.a.rng.IntN(len(list))])
		}
	}},
	{name: "stop to read", do: func(s *foeSocket) { s.deaf = true }},
}

// messageActs are those of the data phase in both protocols.
var messageActs = []foeAct{
	{name: "message", do: func(s *foeSocket) { s.sendMessage(s.outSeq+1, s.a.size()) }},
	{name: "messages", do: func(s *foeSocket) {
		for range 1 + s.a.rng.IntN(60) {
			s.sendMessage(s.outSeq+1, s.a.rng.IntN(2000))
		}
	}},
	{name: "large message", do: func(s *foeSocket) { s.sendMessage(s.outSeq+1, int(s.a.plan.limits.Data)) }},
	{name: "message again", do: func(s *foeSocket) { s.sendMessage(s.outSeq, s.a.size()) }},
	{name: "message of any number", do: func(s *foeSocket) { s.sendMessage(s.a.number(), s.a.size()) }},
	{name: "slow message", do: func(s *foeSocket) {
		s.drip = true
		s.sendMessage(s.outSeq+1, s.a.size())
	}},
	{name: "part of a message", do: func(s *foeSocket) {
		b := s.message(s.outSeq+1, s.a.size())
		s.write(b[:s.a.rng.IntN(len(b))])
		s.mute = s.a.rng.IntN(2) == 0
	}},
}

// foeDataActs are those of the data phase.
var foeDataActs = append(slices.Clone(messageActs), []foeAct{
	{name: "announce what never comes", do: (*foeSocket).announce},
	{name: "control frame that never ends", do: func(s *foeSocket) {
		s.preamble(frame.Header{Tag: frame.Tag(18 + s.a.rng.IntN(3)), Num: 1, Len: [4]uint32{60 << 10}})
		s.write(s.a.bytes(s.a.rng.IntN(60 << 10)))
	}},
	{name: "aborted message", do: func(s *foeSocket) {
		front := make([]byte, 8)
		b := append(s.enc.AppendMessage(nil, &frame.MessageHeader{Seq: s.outSeq + 1}, len(front), 0, 0), front...)
		late := len(b)
		b = s.enc.AppendClose(b, [4][]byte{1: front})
		b[late] = 1 // the late status: aborted, in both revisions
		s.write(b)
	}},
	{name: "acknowledge", do: func(s *foeSocket) { s.acknowledge(s.inSeq) }},
	{name: "acknowledge anything", do: func(s *foeSocket) { s.acknowledge(s.a.number()) }},
	{name: "keepalives", do: func(s *foeSocket) {
		for range 1 + s.a.rng.IntN(50) {
			s.send(frame.TagKeepalive2, s.a.stamp())
		}
	}},
	{name: "keepalive ack unasked", do: func(s *foeSocket) { s.send(frame.TagKeepalive2Ack, s.a.stamp()) }},
}...)

// preamble sends a header in clear, and no bytes after it. No encoder would announce some of
// them: the last segment is empty, or too large.
func (s *foeSocket) preamble(h frame.Header) {
	var b [frame.PreambleSize]byte
	b[0], b[1] = byte(h.Tag), byte(h.Num)
	for i, n := range h.Len[:h.Num] {
		binary.LittleEndian.PutUint32(b[2+6*i:], n)
	}
	binary.LittleEndian.PutUint32(b[28:], frame.SegmentCRC(0, b[:28]))
	s.write(b[:])
}

// announce begins a message within the limits, of which no payload comes.
func (s *foeSocket) announce() {
	l := s.a.plan.limits
	s.preamble(frame.Header{Tag: frame.TagMessage, Num: 4, Len: [4]uint32{frame.MessageHeaderSize, l.Front, l.Middle, l.Data}})
	s.write(s.a.bytes(s.a.rng.IntN(100)))
}

// message makes one with a payload of so many bytes.
func (s *foeSocket) message(seq uint64, size int) []byte {
	if s.v1 {
		return s.message1(seq, size)
	}
	a := s.a
	hd := frame.MessageHeader{Seq: seq, TID: a.number(), Type: uint16(a.rng.Uint32()), Priority: uint16(a.rng.Uint32()), AckSeq: s.inSeq}
	if a.rng.IntN(10) == 0 {
		hd.AckSeq = a.number()
		a.did("acknowledge anything in a message")
	}
	var b [frame.MessageHeaderSize]byte
	hd.Put(&b)
	var segs [3][]byte
	segs[a.rng.IntN(3)] = a.bytes(size)
	return s.frame(frame.TagMessage, b[:], segs[0], segs[1], segs[2])
}

func (s *foeSocket) sendMessage(seq uint64, size int) {
	s.write(s.message(seq, size))
	if seq == s.outSeq+1 {
		s.outSeq = seq
	}
}

// openSession asks for a session, new or old.
func (s *foeSocket) openSession() {
	if s.a.rng.IntN(3) == 0 && !s.feigns {
		s.say(frame.TagSessionReconnect, s.reconnect())
	} else {
		s.say(frame.TagClientIdent, s.clientIdent())
	}
}

func (s *foeSocket) addrs() wire.AddrVec {
	v := wire.AddrVec{s.addr}
	if s.a.rng.IntN(5) == 0 {
		v[0] = s.a.anyAddr()
	}
	for s.a.rng.IntN(4) == 0 {
		v = append(v, s.a.anyAddr())
	}
	return v
}

func (s *foeSocket) clientIdent() wire2.ClientIdent {
	a := s.a
	c := wire2.ClientIdent{
		Addrs: s.addrs(), TargetAddr: s.target(), GID: 66, GlobalSeq: 1, Supported: wire.FeaturesPacific,
		Required: wire.FeatureMsgAddr2, Cookie: s.clientCookie,
	}
	if s.feigns {
		c.Addrs = wire.AddrVec{s.addr}
		return c
	}
	a.maybe(&c.GlobalSeq)
	a.maybe(&c.Flags)
	a.maybe(&c.Cookie)
	if a.rng.IntN(8) == 0 {
		c.GID, c.Supported, c.Required = int64(a.number()), wire.Features(a.number()), wire.Features(a.number())
	}
	return c
}

func (s *foeSocket) serverIdent(target wire.Addr) wire2.ServerIdent {
	a := s.a
	c := wire2.ServerIdent{
		Addrs: append(s.addrs(), target), GID: 66, GlobalSeq: 1, Supported: wire.FeaturesPacific,
		Required: wire.FeatureMsgAddr2, Cookie: s.serverCookie,
	}
	if a.rng.IntN(2) == 0 {
		c.Addrs = wire.AddrVec{target}
	}
	a.maybe(&c.GlobalSeq)
	a.maybe(&c.Flags)
	a.maybe(&c.Cookie)
	return c
}

func (s *foeSocket) reconnect() wire2.SessionReconnect {
	a := s.a
	c := wire2.SessionReconnect{Addrs: s.addrs(), ClientCookie: s.clientCookie, ServerCookie: s.serverCookie, GlobalSeq: 2, ConnectSeq: 1, MsgSeq: s.inSeq}
	for _, n := range []*uint64{&c.ClientCookie, &c.ServerCookie, &c.GlobalSeq, &c.ConnectSeq, &c.MsgSeq} {
		a.maybe(n)
	}
	return c
}

// choice is one of n answers, for some sockets always the same one.
func (s *foeSocket) choice(n int) int {
	if s.stubborn > 0 {
		return (s.stubborn - 1) % n
	}
	return s.a.rng.IntN(n)
}

// answerSession answers CLIENT_IDENT.
func (s *foeSocket) answerSession(target wire.Addr) {
	switch a := s.a; s.choice(8) {
	case 0:
		a.did("answer with wait")
		s.send(frame.TagWait, nil)
	case 1:
		a.did("answer with missing features")
		s.say(frame.TagIdentMissingFeatures, wire2.IdentMissingFeatures{Features: wire.Features(a.number())})
	case 2: // nothing
	default:
		s.say(frame.TagServerIdent, s.serverIdent(target))
		s.opened()
	}
}

// answerReconnect answers SESSION_RECONNECT, for many without end.
func (s *foeSocket) answerReconnect(sr wire2.SessionReconnect) {
	a := s.a
	switch s.choice(6) {
	case 0:
		a.did("answer with retry")
		n := sr.ConnectSeq
		a.maybe(&n)
		s.say(frame.TagSessionRetry, wire2.SessionRetry{ConnectSeq: n})
	case 1:
		a.did("answer with retry global")
		n := sr.GlobalSeq
		a.maybe(&n)
		s.say(frame.TagSessionRetryGlobal, wire2.SessionRetryGlobal{GlobalSeq: n})
	case 2:
		a.did("answer with reset")
		s.say(frame.TagSessionReset, wire2.SessionReset{Full: a.rng.IntN(2) == 0})
	case 3:
		a.did("answer with wait")
		s.send(frame.TagWait, nil)
	default:
		n := s.outSeq
		a.maybe(&n)
		s.say(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{MsgSeq: n})
		s.opened()
	}
}

// The values.

var extremes = []uint64{0, 1, 2, math.MaxUint32 - 1, math.MaxUint32, math.MaxUint32 + 1, 1<<62 - 1, 1 << 62, 1<<62 + 1, math.MaxInt64, 1 << 63, math.MaxUint64 - 1, math.MaxUint64}

// number is any number: an extreme one, one that was seen, or near to it, or small.
func (a *adversary) number() uint64 {
	switch k := a.rng.IntN(8); {
	case k < 3:
		return extremes[a.rng.IntN(len(extremes))]
	case k < 6 && len(a.seen.numbers) > 0:
		return a.seen.numbers[a.rng.IntN(len(a.seen.numbers))] + uint64(a.rng.IntN(3)) - 1
	case k < 7:
		return a.rng.Uint64()
	}
	return uint64(a.rng.IntN(20))
}

// maybe replaces a number, one time in four.
func (a *adversary) maybe(n *uint64) {
	if a.rng.IntN(4) == 0 {
		*n = a.number()
	}
}

func (a *adversary) bytes(n int) []byte {
	at := a.rng.IntN(len(simBytes) - n)
	return simBytes[at : at+n]
}

// size of a payload.
func (a *adversary) size() int {
	if a.rng.IntN(4) == 0 {
		return a.rng.IntN(int(a.plan.limits.Data))
	}
	return a.rng.IntN(300)
}

// stamp is the time of a keepalive: seconds and nanoseconds.
func (a *adversary) stamp() []byte {
	sec, nsec := uint32(math.MaxUint32), uint32(math.MaxUint32)
	if a.rng.IntN(2) > 0 {
		now := time.Unix(1_700_000_000, 0).Add(a.w.net.Now())
		sec, nsec = uint32(now.Unix()), uint32(now.Nanosecond())
	}
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, sec), nsec)
}

// ownAddr is one at which it listens, or could.
func (a *adversary) ownAddr() wire.Addr {
	addr := a.dialled[a.rng.IntN(len(a.dialled))]
	if a.rng.IntN(2) == 0 {
		addr.Nonce = uint32(a.rng.IntN(100))
	}
	return addr
}

// anyAddr is any address that it may claim: of the honest only where names are
// proven.
func (a *adversary) anyAddr() wire.Addr {
	addr := a.ownAddr()
	switch k := a.rng.IntN(10); {
	case k == 0:
		addr.Type = wire.AddrType(a.rng.IntN(5))
	case k == 1:
		addr = addr.WithPort(uint16(a.rng.Uint32()))
	case k == 2:
		addr.Nonce = uint32(a.number())
	case k == 3:
		return wire.Addr{}
	case k == 4:
		return wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("[2001:db8::66]:6800")}
	case a.plan.proven && k == 5 && len(a.seen.addrs) > 0:
		a.did("claim an address that it saw")
		return a.seen.addrs[a.rng.IntN(len(a.seen.addrs))]
	case a.plan.proven && k >= 6:
		a.did("claim the address of a node")
		return a.w.nodes[a.rng.IntN(len(a.w.nodes))].addr
	}
	return addr
}

// honestName is a node's.
func (a *adversary) honestName() wire.EntityName {
	n := a.w.nodes[a.rng.IntN(len(a.w.nodes))]
	if n.server() {
		return wire.EntityName{Type: wire.OSD, ID: n.name()}
	}
	return wire.EntityName{Type: wire.Client, ID: n.name()}
}
